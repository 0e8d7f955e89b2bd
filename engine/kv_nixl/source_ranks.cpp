#include "engine/kv_nixl/source_ranks.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace quire {

std::optional<int> rank_ratio(const RankPair& pair) {
  if (pair.local_ranks % pair.remote_ranks == 0) return pair.local_ranks / pair.remote_ranks;
  if (pair.remote_ranks % pair.local_ranks == 0) return -(pair.remote_ranks / pair.local_ranks);
  return std::nullopt;
}

int SourceRanks::attention_slot(int rank) const {
  const auto after = std::ranges::upper_bound(attention, rank);
  return static_cast<int>(after - attention.begin()) - 1;
}

namespace {

// Ranks there that hold the same head count once, the first.
std::vector<int> ranks_of_heads(const RankPair& pair, const std::vector<int>& ranks) {
  std::vector<int> kept;
  int last = -1;
  for (const int rank : ranks) {
    const int head =
        pair.remote_ranks > pair.kv_heads ? rank * pair.kv_heads / pair.remote_ranks : rank;
    if (head != last) kept.push_back(rank);
    last = head;
  }
  return kept;
}

int head_offset(const RankPair& pair, int ratio, int source) {
  if (pair.has_latents || ratio == 1) return 0;
  if (pair.local_ranks <= pair.kv_heads) return pair.local_rank % ratio;
  // Several ranks here have the same head.
  return pair.local_rank * pair.kv_heads / pair.local_ranks -
         source * pair.kv_heads / pair.remote_ranks;
}

}  // namespace

SourceRanks source_ranks(const RankPair& pair) {
  const auto ratio = rank_ratio(pair);
  if (!ratio) throw std::invalid_argument("numbers of ranks of which neither divides the other");
  SourceRanks sources{.ratio = *ratio};
  if (*ratio > 0) {
    const int source = pair.local_rank / *ratio;
    sources.asked = sources.attention = sources.states = {source};
    sources.head_offset = head_offset(pair, *ratio, source);
    sources.state_offset = pair.local_rank % *ratio;
    return sources;
  }
  const int count = -*ratio;
  sources.asked.resize(static_cast<std::size_t>(count));
  std::iota(sources.asked.begin(), sources.asked.end(), pair.local_rank * count);
  sources.states = sources.asked;
  sources.attention =
      pair.has_latents ? std::vector{sources.asked.front()} : ranks_of_heads(pair, sources.asked);
  return sources;
}

std::vector<BlockCopy> attention_copies(const SourceRanks& sources, int rank,
                                        std::int64_t local_bytes, std::int64_t remote_bytes,
                                        int parts) {
  const auto num_sources = static_cast<std::int64_t>(sources.attention.size());
  const std::int64_t local_part = local_bytes / parts, remote_part = remote_bytes / parts;
  const std::int64_t bytes = local_part / num_sources;
  std::vector<BlockCopy> copies;
  for (int part = 0; part < parts; ++part)
    copies.push_back({part * remote_part + sources.head_offset * local_part,
                      part * local_part + sources.attention_slot(rank) * bytes, bytes});
  if (parts == 1 || bytes < local_part || bytes < remote_part) return copies;
  return {{0, 0, local_bytes}};
}

std::int64_t StateBytes::conv() const {
  return std::reduce(projections.begin(), projections.end());
}

StateBytes remote_state(const StateBytes& local, int ratio) {
  StateBytes remote = local;
  const auto scale = [ratio](std::int64_t bytes) {
    return ratio > 0 ? bytes * ratio : bytes / -ratio;
  };
  for (std::int64_t& bytes : remote.projections) bytes = scale(bytes);
  remote.rest = scale(remote.rest);
  return remote;
}

std::vector<BlockCopy> state_copies(const SourceRanks& sources, int rank, const StateBytes& local) {
  const StateBytes remote = remote_state(local, sources.ratio);
  const auto position = std::ranges::find(sources.states, rank) - sources.states.begin();
  std::vector<BlockCopy> copies;
  std::int64_t remote_at = 0, local_at = 0;
  const auto add = [&](std::int64_t remote_bytes, std::int64_t local_bytes) {
    const std::int64_t bytes = std::min(remote_bytes, local_bytes);
    copies.push_back(
        {remote_at + sources.state_offset * bytes, local_at + position * bytes, bytes});
    remote_at += remote_bytes;
    local_at += local_bytes;
  };
  for (std::size_t i = 0; i < local.projections.size(); ++i)
    add(remote.projections[i], local.projections[i]);
  add(remote.rest, local.rest);
  return copies;
}

std::vector<std::int64_t> projection_channels(StateKind kind, std::int64_t channels,
                                              std::int64_t values) {
  const std::int64_t others = channels - values;
  if (values <= 0 || others <= 0 || others % 2 != 0) return {};
  if (kind == StateKind::mamba2) return {values, others / 2, others / 2};
  return {others / 2, others / 2, values};
}

std::int64_t blocks_of_state(const StateBytes& state, std::int64_t block_bytes) {
  return (state.conv() + state.rest + block_bytes - 1) / block_bytes;
}

}  // namespace quire
