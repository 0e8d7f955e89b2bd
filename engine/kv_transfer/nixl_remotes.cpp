#include "engine/kv_transfer/nixl_remotes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace quire {
namespace {

constexpr std::chrono::hours kLongAgo{1};  // as vLLM's engine_ttl
constexpr std::size_t kMostUnused = 256;
constexpr std::size_t kMostNotices = 1024;  // to one that has not answered yet

std::string name_of(const KvSource& source) {
  return fmt::format("{} {} {}", source.address.text(), source.engine, source.tensor_ranks);
}

}  // namespace

NixlRemotes::NixlRemotes(const NixlSelf& self, SideChannel& channel,
                         std::function<NixlAgent&()> agent, std::chrono::nanoseconds silence)
    : self_(self), channel_(channel), agent_(std::move(agent)), silence_(silence) {}

NixlRemotes::~NixlRemotes() = default;

NixlRemote& NixlRemotes::of(const KvSource& source) {
  auto& slot = remotes_[name_of(source)];
  const bool is_newer =
      slot != nullptr && slot->source.prefill.generation < source.prefill.generation;
  if (is_newer && slot->num_uses > 0) {
    slot->lost.emplace(KvLossReason::peer_lost, "it has registered its memory again");
  } else if (is_newer) {
    forget_agents(*slot);
    slot.reset();
  }
  if (slot != nullptr) {
    slot->used = Clock::now();
    return *slot;
  }
  slot = std::make_unique<NixlRemote>();
  slot->source = source;
  ask(*slot);
  return *slot;
}

void NixlRemotes::ask(NixlRemote& remote) {
  remote.asked = remote.used = Clock::now();
  const std::string peer = remote.source.address.text();
  if (!silent_.may_ask(peer, remote.asked)) {
    remote.lost.emplace(KvLossReason::peer_lost, "it was silent a moment ago and is left alone");
    return;
  }
  try {
    for (const KvLayerGeometry& layer : self_.geometry.layers)
      if (!layer.is_state()) ranks_of(layer, remote.source.tensor_ranks);
    ask_rank(remote, 0);
  } catch (const KvLost& lost) {
    remote.lost.emplace(lost);
  } catch (const Failure& failure) {
    remote.lost.emplace(KvLossReason::peer_lost, failure.what());
  }
}

void NixlRemotes::ask_rank(NixlRemote& remote, int rank) {
  remote.questions.push_back(
      channel_.ask(remote.source.address, encode_metadata_request({0, rank}, self_.profile)));
  remote.answers.emplace_back();
}

void NixlRemotes::take_answers(NixlRemote& remote, Clock::time_point now) {
  if (remote.questions.empty() || remote.lost) return;
  try {
    for (std::size_t rank = 0; rank < remote.questions.size(); ++rank) {
      if (remote.answers[rank]) continue;
      if (const auto frames = remote.questions[rank]->take())
        remote.answers[rank] = read_peer_rank(self_, remote.source, *frames);
    }
    // vLLM's side channel dies of a question for a rank that there is not: the first one's blocks
    // show how many there are.
    const bool knows_first = remote.answers.size() == 1 && remote.answers.front();
    for (int rank = 1; knows_first && rank < remote.source.tensor_ranks; ++rank)
      ask_rank(remote, rank);
    if (std::ranges::all_of(remote.answers, &std::optional<NixlPeerRank>::has_value)) {
      std::vector<NixlPeerRank> ranks;
      for (auto& answer : remote.answers) ranks.push_back(std::move(*answer));
      greet(remote, std::move(ranks));
    } else if (now - remote.asked > silence_) {
      throw KvLost(KvLossReason::peer_lost, "no answer from its side channel", true);
    }
  } catch (const KvLost& lost) {
    lose(remote, lost, now);
  } catch (const std::exception& failure) {  // of the library
    lose(remote, KvLost(KvLossReason::refused, failure.what()), now);
  }
}

// The library takes names and keys of it from here on.
void NixlRemotes::greet(NixlRemote& remote, std::vector<NixlPeerRank> ranks) {
  for (const NixlPeerRank& rank : ranks) {
    const bool same =
        rank.metadata.num_blocks == ranks.front().metadata.num_blocks &&
        rank.metadata.block_size == ranks.front().metadata.block_size &&
        rank.metadata.kernel_blocks_per_block == ranks.front().metadata.kernel_blocks_per_block &&
        rank.metadata.region_blocks == ranks.front().metadata.region_blocks &&
        rank.metadata.base_addresses.size() == ranks.front().metadata.base_addresses.size();
    if (!same) throw KvLost(KvLossReason::incompatible, "the ranks of the peer differ");
  }
  remote.questions.clear();
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
  if (lost.is_silence()) silent_.was_silent(remote.source.address.text(), remote.asked, now);
  static log::Limit lines(8);  // a request may name an engine that there is not
  if (lines.allows())
    log::warn("kv_transfer.peer_lost",
              {{"peer", remote.source.address.text()}, {"because", lost.what()}});
  remote.questions.clear();
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
    if (!remote->questions.empty()) next = std::min(next, remote->asked + silence_);
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
    } else if (remote->questions.empty()) {
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
