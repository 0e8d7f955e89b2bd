#include "engine/kv_transfer/nixl_remotes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace quire {
namespace {

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
    for (const std::string& agent : slot->agents) agent_().forget_remote(agent);
    slot.reset();
  }
  if (slot != nullptr) return *slot;
  slot = std::make_unique<NixlRemote>();
  slot->source = source;
  ask(*slot);
  return *slot;
}

void NixlRemotes::ask(NixlRemote& remote) {
  remote.asked = Clock::now();
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
  } catch (const Failure& failure) {
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
        rank.metadata.base_addresses.size() == ranks.front().metadata.base_addresses.size();
    if (!same) throw KvLost(KvLossReason::incompatible, "the ranks of the peer differ");
  }
  remote.questions.clear();
  remote.ranks = std::make_shared<const std::vector<NixlPeerRank>>(std::move(ranks));
  for (const NixlPeerRank& rank : *remote.ranks)
    remote.agents.push_back(agent_().add_remote(rank.metadata.agent));
  silent_.answered(remote.source.address.text());
  for (const std::string& notice : std::exchange(remote.notices, {})) tell(remote, notice);
}

void NixlRemotes::lose(NixlRemote& remote, const KvLost& lost, Clock::time_point now) {
  if (lost.is_silence()) silent_.was_silent(remote.source.address.text(), remote.asked, now);
  log::warn("kv_transfer.peer_lost",
            {{"peer", remote.source.address.text()}, {"because", lost.what()}});
  remote.questions.clear();
  remote.lost.emplace(lost);
}

void NixlRemotes::tell(NixlRemote& remote, const std::string& notice) {
  if (remote.lost) return;
  if (!remote.is_ready()) {
    remote.notices.push_back(notice);
    return;
  }
  try {
    for (const std::string& agent : remote.agents) agent_().notify(agent, notice);
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

void NixlRemotes::forget_lost() {
  for (auto remote = remotes_.begin(); remote != remotes_.end();) {
    const auto current = remote++;
    if (!current->second->lost || current->second->num_uses > 0) continue;
    for (const std::string& agent : current->second->agents) agent_().forget_remote(agent);
    remotes_.erase(current);
  }
}

}  // namespace quire
