#include "engine/kv_transfer/nixl/remotes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/kv_transfer/nixl/exports.h"

namespace quire {
namespace {

constexpr std::chrono::hours kLongAgo{1};  // as vLLM's engine_ttl
constexpr std::size_t kMostUnused = 256;
constexpr std::size_t kMostNotices = 1024;  // to one that has not answered yet
constexpr std::size_t kMostGenerations = 16;
constexpr std::chrono::minutes kLongestLease{10};

std::string name_of(const KvSource& source) {
  return fmt::format("{} {} {}", source.address.text(), source.engine, source.tensor_ranks);
}

// Of what is the same as long as its memory is: a second frame has the peer's clock.
std::size_t hash_of(const std::vector<std::string>& frames) {
  return std::hash<std::string>()(frames.front());
}

}  // namespace

NixlRemotes::NixlRemotes(const NixlSelf& self, SideChannel& channel,
                         std::function<NixlAgent&()> agent, std::chrono::nanoseconds silence)
    : self_(self), channel_(channel), agent_(std::move(agent)), silence_(silence) {}

NixlRemotes::~NixlRemotes() = default;

NixlRemote& NixlRemotes::of(const KvSource& source) {
  auto& slot = remotes_[name_of(source)];
  if (slot != nullptr) {
    slot->used = Clock::now();
    return *slot;
  }
  slot = std::make_unique<NixlRemote>();
  slot->source = source;
  ask(*slot);
  return *slot;
}

// The answer is that of now, whatever number a request says: who says one that is new costs the
// peer a question, and nobody else anything.
bool NixlRemotes::shows(NixlRemote& remote, const KvSource& source, Clock::time_point now) {
  const std::uint64_t said = source.prefill.generation;
  if (said == 0) return true;
  const auto lose = [&](const char* why) {
    throw KvLost(KvLossReason::expired,
                 fmt::format("remote_registration_generation is {}; {}", said, why));
  };
  if (remote.ranks->front().metadata.quire && said != kNixlRegistration)
    lose("a Quire server, which this is, has 1");
  const auto former = former_.find(name_of(remote.source));
  if (former != former_.end() && now < former->second.until && said <= former->second.generation)
    lose("its memory has been registered again since");
  const auto& known = remote.generations;
  if (std::ranges::find(known, said) != known.end()) return true;
  if (remote.question != nullptr) return false;
  if (said == remote.asked_for && now - remote.asked < 2 * silence_)
    lose("its side channel does not answer whether that is so");
  const auto refusal = again_.refusal(remote.source.address.text(), {}, now);
  if (!refusal) {
    ask_again(remote, said, now);
    return false;
  }
  if (known.empty() || said > std::ranges::max(known)) throw KvLost(*refusal);
  return true;  // it was asked for a later one
}

void NixlRemotes::ask_again(NixlRemote& remote, std::uint64_t generation, Clock::time_point now) {
  const KvLost because(
      KvLossReason::expired,
      fmt::format("remote_registration_generation is {}, and was another", generation));
  again_.was_in_vain(remote.source.address.text(), because, {}, now);
  remote.asked = now;
  remote.asked_for = generation;
  remote.question =
      channel_.ask(remote.source.address, encode_metadata_request({0, 0}, self_.profile));
}

// Of what requests said of the memory before the least counts, which takes nothing from others.
void NixlRemotes::take_second_answer(NixlRemote& remote, Clock::time_point now) {
  const auto frames = remote.question->take();
  if (!frames && now - remote.asked <= silence_) return;
  remote.question.reset();
  if (!frames || frames->empty()) return;
  auto& known = remote.generations;
  if (hash_of(*frames) == remote.answer_hash) {
    if (known.size() == kMostGenerations) known.pop_back();
    known.push_back(remote.asked_for);
    return;
  }
  if (former_.size() >= kMostUnused) former_.clear();
  if (!known.empty() && std::ranges::min(known) < remote.asked_for)
    former_[name_of(remote.source)] = {std::ranges::min(known), now + kLongestLease};
  if (remote.num_uses == 0) return start_over(remote);
  remote.lost.emplace(KvLossReason::peer_lost, "it has registered its memory again");
}

void NixlRemotes::start_over(NixlRemote& remote) {
  forget_agents(remote);
  NixlRemote again;
  again.source = remote.source;
  again.source.prefill.generation = remote.asked_for;
  remote = std::move(again);
  ask(remote);
}

void NixlRemotes::ask(NixlRemote& remote) {
  remote.asked = remote.used = Clock::now();
  const std::string peer = remote.source.address.text();
  if (!silent_.may_ask(peer, remote.asked)) {
    remote.lost.emplace(KvLossReason::peer_lost, "it was silent a moment ago and is left alone");
    return;
  }
  try {
    check_ranks(remote);
    const std::string& engine = remote.source.engine;
    const int ranks = remote.source.tensor_ranks;
    if (const auto refusal = failed_asks_.refusal(peer, engine, remote.asked, ranks))
      throw KvLost(*refusal);
    if (num_asked(peer) >= FailedAsks::kMost && !failed_asks_.knows(peer, engine, ranks))
      throw KvLost(KvLossReason::refused,
                   fmt::format("{} has {} questions to answer", peer, FailedAsks::kMost));
    ask_rank(remote, 0);
  } catch (const KvLost& lost) {
    remote.lost.emplace(lost);
  } catch (const Failure& failure) {
    remote.lost.emplace(KvLossReason::peer_lost, failure.what());
  }
}

// A request says how many ranks there are. Where the peer has shown another number, that counts,
// and where it shows none, the most that have answered: vLLM's side channel dies of a question for
// more.
void NixlRemotes::check_ranks(const NixlRemote& remote) const {
  const int said = remote.source.tensor_ranks;
  for (const KvLayerGeometry& layer : self_.geometry.layers)
    if (!layer.is_state()) ranks_of(layer, said);
  int most = 0;
  for (const auto& [name, other] : remotes_) {
    if (other == nullptr || !other->is_ready() || other->source.engine != remote.source.engine)
      continue;
    most = std::max(most, other->source.tensor_ranks);
    if (other->source.tensor_ranks != said && shows_ranks(*other))
      throw KvLost(KvLossReason::incompatible,
                   fmt::format("tp_size is said to be {}; the same engine has shown that it has {}",
                               said, other->source.tensor_ranks));
  }
  if (most > 0 && said > most)
    throw KvLost(
        KvLossReason::incompatible,
        fmt::format("tp_size is said to be {}; {} of the same engine have answered", said, most));
}

int NixlRemotes::num_asked(const std::string& peer) const {
  return static_cast<int>(std::ranges::count_if(remotes_, [&](const auto& one) {
    return one.second != nullptr && one.second->question != nullptr &&
           one.second->source.address.text() == peer;
  }));
}

// Ranks that have the same heads, or a latent, are as large whatever their number.
bool NixlRemotes::shows_ranks(const NixlRemote& remote) const {
  return remote.ranks->front().metadata.quire ||
         std::ranges::any_of(self_.geometry.layers, [&](const KvLayerGeometry& layer) {
           return layer.is_state() ||
                  (layer.planes > 1 && remote.source.tensor_ranks < layer.heads);
         });
}

void NixlRemotes::ask_rank(NixlRemote& remote, int rank) {
  remote.question =
      channel_.ask(remote.source.address, encode_metadata_request({0, rank}, self_.profile));
  remote.answers.emplace_back();
}

void NixlRemotes::read_answer(NixlRemote& remote, const std::vector<std::string>& frames,
                              Clock::time_point now) {
  try {
    remote.answers.back() = read_peer_rank(self_, remote.source, frames);
    if (remote.answers.size() == 1) remote.answer_hash = hash_of(frames);
  } catch (const KvLost& lost) {
    failed_asks_.was_in_vain(remote.source.address.text(), lost, engines_named(self_, frames), now,
                             remote.source.tensor_ranks);
    throw;
  }
}

void NixlRemotes::take_answers(NixlRemote& remote, Clock::time_point now) {
  if (remote.question == nullptr || remote.lost) return;
  if (remote.is_ready()) return take_second_answer(remote, now);
  try {
    if (const auto frames = remote.question->take()) read_answer(remote, *frames, now);
    // vLLM's side channel dies of a question for a rank that there is not. The first one's blocks
    // show how many there are, but where all have the same. So one is asked once the one before has
    // answered, and a number that was only said costs one question.
    if (remote.answers.back()) {
      const auto num_answers = static_cast<int>(remote.answers.size());
      if (num_answers == remote.source.tensor_ranks) return greet(remote);
      remote.asked = now;
      ask_rank(remote, num_answers);
    } else if (now - remote.asked > silence_) {
      const auto rank = remote.answers.size() - 1;
      if (rank == 0) throw KvLost(KvLossReason::peer_lost, "no answer from its side channel", true);
      const int said = remote.source.tensor_ranks;
      const KvLost lost(KvLossReason::peer_lost,
                        fmt::format("tp_size is said to be {}; no answer of rank {}", said, rank));
      failed_asks_.was_in_vain(remote.source.address.text(), lost, {remote.source.engine}, now,
                               said);
      throw KvLost(lost);
    }
  } catch (const KvLost& lost) {
    lose(remote, lost, now);
  } catch (const std::exception& failure) {  // of the library
    lose(remote, KvLost(KvLossReason::refused, failure.what()), now);
  }
}

// The library takes names and keys of it from here on.
void NixlRemotes::greet(NixlRemote& remote) {
  std::vector<NixlPeerRank> ranks;
  for (auto& answer : remote.answers) ranks.push_back(std::move(*answer));
  for (const NixlPeerRank& rank : ranks) {
    const bool same =
        rank.metadata.num_blocks == ranks.front().metadata.num_blocks &&
        rank.metadata.block_size == ranks.front().metadata.block_size &&
        rank.metadata.kernel_blocks_per_block == ranks.front().metadata.kernel_blocks_per_block &&
        rank.metadata.region_blocks == ranks.front().metadata.region_blocks &&
        rank.metadata.base_addresses.size() == ranks.front().metadata.base_addresses.size();
    if (!same) throw KvLost(KvLossReason::incompatible, "the ranks of the peer differ");
    const auto agents = std::ranges::count(ranks, rank.agent_name, &NixlPeerRank::agent_name);
    if (agents > 1)
      throw KvLost(
          KvLossReason::incompatible,
          fmt::format("tp_size is said to be {}; {} of these are one agent", ranks.size(), agents));
  }
  remote.question.reset();
  remote.answers.clear();
  if (const auto said = remote.source.prefill.generation; said != 0) remote.generations = {said};
  remote.ranks = std::make_shared<const std::vector<NixlPeerRank>>(std::move(ranks));
  for (const NixlPeerRank& rank : *remote.ranks)
    remote.agents.push_back(agent_().add_remote(rank.metadata.agent));
  silent_.answered(remote.source.address.text());
  lose_earlier_starts(remote);
  for (NixlRemote::Notice& notice : std::exchange(remote.notices, {}))
    say(remote, std::move(notice));
}

// Who listens there now is another.
void NixlRemotes::lose_earlier_starts(const NixlRemote& remote) {
  for (auto& [name, other] : remotes_) {
    if (other->source.address.text() == remote.source.address.text() &&
        other->source.engine != remote.source.engine && other->is_ready())
      other->lost.emplace(KvLossReason::peer_lost, "it has been started again");
  }
}

void NixlRemotes::lose(NixlRemote& remote, const KvLost& lost, Clock::time_point now) {
  const std::string peer = remote.source.address.text();
  if (lost.is_silence()) silent_.was_silent(peer, remote.asked, now);
  static log::Limit lines(8);  // a request may name an engine that there is not
  if (lines.allows())
    log::warn("kv_transfer.peer_lost", {{"peer", peer}, {"because", lost.what()}});
  remote.question.reset();
  remote.answers.clear();
  remote.lost.emplace(lost);
}

void NixlRemotes::say(NixlRemote& remote, NixlRemote::Notice notice) {
  if (remote.lost) return;
  if (!remote.is_ready()) {
    if (remote.notices.size() == kMostNotices) remote.notices.pop_front();
    remote.notices.push_back(std::move(notice));
    return;
  }
  if (notice.is_quire && !remote.ranks->front().metadata.quire) return;
  try {
    for (const std::string& agent : remote.agents) agent_().notify(agent, notice.text);
  } catch (const Failure& failure) {
    lose(remote, KvLost(KvLossReason::peer_lost, failure.what()), Clock::now());
  }
}

void NixlRemotes::take_answers(Clock::time_point now) {
  for (auto& [name, remote] : remotes_) take_answers(*remote, now);
}

NixlRemotes::Clock::time_point NixlRemotes::next() const {
  auto next = Clock::time_point::max();
  for (const auto& [name, remote] : remotes_)
    if (remote->question != nullptr) next = std::min(next, remote->asked + silence_);
  return next;
}

// Asked at two addresses of its, a server is there twice, with the same agents.
void NixlRemotes::forget_agents(const NixlRemote& remote) {
  for (const std::string& agent : remote.agents) {
    const bool is_anothers = std::ranges::any_of(remotes_, [&](const auto& one) {
      const NixlRemote* const other = one.second.get();
      return other != nullptr && other != &remote &&
             std::ranges::find(other->agents, agent) != other->agents.end();
    });
    if (!is_anothers) agent_().forget_remote(agent);
  }
}

void NixlRemotes::forget(const std::string& name) {
  const auto found = remotes_.find(name);
  forget_agents(*found->second);
  remotes_.erase(found);
}

void NixlRemotes::forget_unused(Clock::time_point now) {
  std::vector<std::pair<Clock::time_point, std::string>> unused;
  std::vector<std::string> gone;
  for (const auto& [name, remote] : remotes_) {
    if (remote->num_uses > 0) continue;
    if (remote->lost || now - remote->used > kLongAgo) {
      gone.push_back(name);
    } else if (remote->question == nullptr) {
      unused.emplace_back(remote->used, name);
    }
  }
  if (unused.size() > kMostUnused) {
    std::ranges::sort(unused);
    unused.resize(unused.size() - kMostUnused);
    for (auto& [used, name] : unused) gone.push_back(std::move(name));
  }
  for (const std::string& name : gone) forget(name);
}

}  // namespace quire
