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

}  // namespace

Result<CaptureSizes> capture_sizes(const GraphConfig& config, int max_num_seqs,
                                   const OpsTraits& ops, const std::vector<KvGroup>& groups) {
  if (config.enforce_eager) return CaptureSizes{.why_none = "GraphConfig::enforce_eager"};
  for (const KvGroup& group : groups) {
    if (ops.graph_support(cache_kind(group.spec)) >= GraphSupport::single_token) continue;
    const std::string why =
        "this backend has no graphs for " + std::string(kind_name(group.spec.kind)) + " layers";
    if (config.capture_sizes.empty()) return CaptureSizes{.why_none = why};
    return Error{ErrorCode::invalid_argument, "GraphConfig::capture_sizes has no effect: " + why,
                 "GraphConfig::capture_sizes"};
  }
  CaptureSizes result{.sizes = config.capture_sizes};
  if (result.sizes.empty()) result.sizes = default_capture_sizes(max_num_seqs);
  std::ranges::sort(result.sizes);
  result.sizes.erase(std::unique(result.sizes.begin(), result.sizes.end()), result.sizes.end());
  return result;
}

std::vector<int> default_capture_sizes(int max_num_seqs) {
  return capture_sizes_up_to(max_num_seqs);
}

std::vector<int> draft_capture_sizes(const std::vector<int>& sizes, int num_drafts,
                                     int max_num_batched_tokens, const OpsTraits& ops,
                                     const std::vector<KvGroup>& groups) {
  std::vector<int> result;
  const bool has_graphs = std::ranges::all_of(groups, [&](const KvGroup& group) {
    return ops.graph_support(cache_kind(group.spec)) >= GraphSupport::uniform;
  });
  if (num_drafts == 0 || !has_graphs) return result;
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
  if (found == graphs_.end() || found->first.num_drafts != num_drafts) return {};
  return found->first;
}

void GraphCache::replay(const GraphShape& shape, StreamRef stream) {
  const auto found = find(shape);
  assert(found != graphs_.end() && found->first == shape);
  found->second->replay(stream);
  ++num_replays_;
}

}  // namespace quire
