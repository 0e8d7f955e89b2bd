#include "engine/kv_nixl/peer_fit.h"

#include <algorithm>
#include <array>

namespace quire {
namespace {

constexpr std::array<std::string_view, 14> kNames = {"tp_not_divisible",
                                                     "block_size_not_divisible",
                                                     "replicated_kv_with_more_producers",
                                                     "mamba_ratio_with_prefix_caching",
                                                     "hma_block_size_differs",
                                                     "layout_differs",
                                                     "permute_with_hma",
                                                     "head_split_needs_hnd",
                                                     "block_len_differs_replicated",
                                                     "remote_block_lens_not_equal",
                                                     "block_len_differs",
                                                     "block_size_differs_with_more_producers",
                                                     "remote_num_blocks_differ_between_ranks",
                                                     "region_count_differs"};

using Problem = std::optional<FitProblem>;
Problem problem(Misfit misfit, std::size_t region = 0) { return FitProblem{misfit, region}; }

bool is_replicated(const FitInput& in) {
  const bool shares_heads = in.ranks.remote_ranks > in.ranks.kv_heads;
  return in.ranks.has_latents || (shares_heads && !in.rules.joins_replicated);
}

Problem sizes_misfit(const FitInput& in, int ratio) {
  if (in.local.block_size % in.remote.block_size != 0)
    return problem(Misfit::block_size_not_divisible);
  const bool has_heads = !in.ranks.has_latents && !in.rules.has_states;
  if (has_heads && ratio < 0 && is_replicated(in))
    return problem(Misfit::replicated_kv_with_more_producers);
  if (in.rules.has_states && in.rules.caches_prefixes && in.local.ratio != in.remote.ratio)
    return problem(Misfit::mamba_ratio_with_prefix_caching);
  if (in.rules.has_groups && in.local.block_size != in.remote.block_size)
    return problem(Misfit::hma_block_size_differs);
  return std::nullopt;
}

Problem layout_misfit(const FitInput& in, int ratio) {
  if (in.ranks.has_latents) return std::nullopt;
  if (in.local.layout != in.remote.layout) {
    if (!in.rules.may_permute || !has_contiguous_heads(in.remote.layout))
      return problem(Misfit::layout_differs);
    if (in.rules.has_groups) return problem(Misfit::permute_with_hma);
  }
  if (ratio != 1 && !is_replicated(in) && !has_contiguous_heads(in.remote.layout))
    return problem(Misfit::head_split_needs_hnd);
  return std::nullopt;
}

Problem lens_misfit(const FitInput& in, int ratio) {
  const auto local = in.local.block_lens, remote = in.remote.block_lens;
  const auto shrink = static_cast<std::uint64_t>(in.local.block_size / in.remote.block_size);
  const std::size_t common = std::min(local.size(), remote.size());
  if (is_replicated(in)) {
    for (std::size_t i = 0; i < common && !in.rules.has_states; ++i)
      if (local[i] / shrink != remote[i]) return problem(Misfit::block_len_differs_replicated, i);
    return std::nullopt;
  }
  for (std::size_t i = 0; i < remote.size() && !in.rules.lens_may_differ; ++i)
    if (remote[i] != remote.front()) return problem(Misfit::remote_block_lens_not_equal, i);
  if (ratio < 0 && shrink != 1) return problem(Misfit::block_size_differs_with_more_producers);
  const std::uint64_t sources = source_ranks(in.ranks).attention.size();
  const std::size_t looked_at =
      in.rules.lens_may_differ ? common : std::min<std::size_t>(common, 1);
  for (std::size_t i = 0; i < looked_at && !in.rules.has_states; ++i) {
    const std::uint64_t wanted =
        ratio > 0 ? local[i] * static_cast<std::uint64_t>(ratio) / shrink : local[i] / sources;
    if (remote[i] != wanted) return problem(Misfit::block_len_differs, i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Misfit misfit) { return kNames[static_cast<std::size_t>(misfit)]; }

bool has_contiguous_heads(std::string_view layout) { return layout == "HND" || layout == "LBHNC"; }

bool needs_permutation(const FitInput& in) {
  return !in.ranks.has_latents && in.local.layout != in.remote.layout;
}

std::optional<FitProblem> peer_misfit(const FitInput& in) {
  const auto ratio = rank_ratio(in.ranks);
  if (!ratio) return problem(Misfit::tp_not_divisible);
  if (auto found = sizes_misfit(in, *ratio)) return found;
  if (auto found = layout_misfit(in, *ratio)) return found;
  if (auto found = lens_misfit(in, *ratio)) return found;
  if (in.known_blocks && *in.known_blocks != in.num_blocks)
    return problem(Misfit::remote_num_blocks_differ_between_ranks);
  if (in.local.block_lens.size() != in.remote.block_lens.size())
    return problem(Misfit::region_count_differs);
  return std::nullopt;
}

}  // namespace quire
