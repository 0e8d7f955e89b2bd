#include "engine/runner/graph_cache.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "engine/capture_sizes.h"

namespace quire {
namespace {

CacheKind cache_kind(const KvSpec& spec) {
  if (spec.kind == KvKind::mamba) return CacheKind::state;
  const bool latent = spec.kind == KvKind::mla || spec.kind == KvKind::sliding_window_mla;
  return latent ? CacheKind::latent : CacheKind::paged;
}

bool all_support(GraphSupport wanted, const OpsTraits& ops, const std::vector<KvGroup>& groups) {
  return std::ranges::all_of(groups, [&](const KvGroup& group) {
    return ops.graph_support({cache_kind(group.spec), group.spec.dtype}) >= wanted;
  });
}

void sort_sizes(std::vector<int>& sizes) {
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
}

std::vector<int> mixed_sizes(const GraphConfig& config, int max_tokens) {
  if (config.only_decode) return {};
  std::vector<int> sizes = config.capture_sizes;
  if (sizes.empty()) {
    const int most = config.max_capture_size > 0 ? config.max_capture_size : kMostMixed;
    sizes = mixed_capture_sizes_up_to(std::min({most, kMostMixed, max_tokens}));
  }
  for (int& size : sizes) size = std::min(size, max_tokens);
  sort_sizes(sizes);
  return sizes;
}

}  // namespace

Result<CaptureSizes> capture_sizes(const GraphConfig& config, const GraphLimits& limits,
                                   const OpsTraits& ops, const std::vector<KvGroup>& groups) {
  if (config.enforce_eager) return CaptureSizes{.why_none = "GraphConfig::enforce_eager"};
  for (const KvGroup& group : groups) {
    if (all_support(GraphSupport::single_token, ops, {group})) continue;
    const std::string why =
        "this backend has no graphs for " + std::string(kind_name(group.spec.kind)) + " layers";
    if (config.capture_sizes.empty()) return CaptureSizes{.why_none = why};
    return Error{ErrorCode::invalid_argument, "GraphConfig::capture_sizes has no effect: " + why,
                 "GraphConfig::capture_sizes"};
  }
  const int most = limits.max_num_seqs;
  CaptureSizes result{.sizes = config.capture_sizes};
  if (result.sizes.empty())
    result.sizes = capture_sizes_up_to(
        config.max_capture_size > 0 ? std::min(config.max_capture_size, most) : most);
  for (int& size : result.sizes) size = std::min(size, most);
  sort_sizes(result.sizes);
  if (all_support(GraphSupport::always, ops, groups))
    result.mixed_sizes = mixed_sizes(config, limits.max_tokens);
  result.keeps_faster = config.capture_sizes.empty();
  return result;
}

GraphShape mixed_shape(int num_tokens, int max_num_seqs) {
  const int num_rows = std::min({num_tokens, max_num_seqs, kMostMixedRows});
  return {.num_tokens = num_tokens, .num_rows = num_rows + 1};
}

std::vector<int> draft_capture_sizes(const std::vector<int>& sizes, int num_drafts,
                                     int max_num_batched_tokens, const OpsTraits& ops,
                                     const std::vector<KvGroup>& groups) {
  std::vector<int> result;
  if (num_drafts == 0 || !all_support(GraphSupport::uniform, ops, groups)) return result;
  std::ranges::copy_if(sizes, std::back_inserter(result), [&](int rows) {
    return std::int64_t{rows} * (1 + num_drafts) <= max_num_batched_tokens;
  });
  return result;
}

void GraphCache::add(const GraphShape& shape, std::unique_ptr<Graph> graph) {
  assert(graphs_.empty() || graphs_.back().first < shape);
  graphs_.emplace_back(shape, std::move(graph));
}

auto GraphCache::find(const GraphShape& shape) const {
  return std::ranges::lower_bound(graphs_, shape, {}, [](const auto& g) { return g.first; });
}

GraphShape GraphCache::shape_for(int num_rows, int num_drafts) const {
  const auto found = find({.num_drafts = num_drafts, .num_rows = num_rows});
  if (found == graphs_.end() || found->first.is_mixed() || found->first.num_drafts != num_drafts)
    return {};
  return found->first;
}

GraphShape GraphCache::mixed_shape_for(int num_rows, int num_tokens) const {
  const auto found = find({.num_tokens = num_tokens});
  if (found == graphs_.end() || !found->second || found->first.num_rows <= num_rows) return {};
  return found->first;
}

std::vector<int> GraphCache::mixed_sizes() const {
  std::vector<int> sizes;
  for (const auto& [shape, graph] : graphs_)
    if (shape.is_mixed() && graph) sizes.push_back(shape.num_tokens);
  return sizes;
}

void GraphCache::replay(const GraphShape& shape, StreamRef stream) {
  const auto found = find(shape);
  assert(found != graphs_.end() && found->first == shape);
  found->second->replay(stream);
  ++num_replays_;
}

}  // namespace quire
