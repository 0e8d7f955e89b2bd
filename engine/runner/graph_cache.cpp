#include "engine/runner/graph_cache.h"

#include <algorithm>
#include <cassert>

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
  const auto next = [](int size) { return size < 8 ? 2 * size : size + (size < 256 ? 8 : 16); };
  std::vector<int> sizes;
  for (int size = 1; size < max_num_seqs; size = next(size)) sizes.push_back(size);
  sizes.push_back(max_num_seqs);
  return sizes;
}

void GraphCache::add(int size, std::unique_ptr<Graph> graph) {
  assert(graphs_.empty() || graphs_.back().first < size);
  graphs_.emplace_back(size, std::move(graph));
}

auto GraphCache::find(int num_rows) const {
  return std::ranges::lower_bound(graphs_, num_rows, {}, [](const auto& g) { return g.first; });
}

int GraphCache::size_for(int num_rows) const {
  const auto found = find(num_rows);
  return found == graphs_.end() ? 0 : found->first;
}

void GraphCache::replay(int size, StreamRef stream) {
  const auto found = find(size);
  assert(found != graphs_.end() && found->first == size);
  found->second->replay(stream);
  ++num_replays_;
}

}  // namespace quire
