#include "engine/kv_plan/groups.h"

#include <algorithm>
#include <unordered_set>

#include "engine/kv_plan/latent_groups.h"
#include "engine/kv_plan/page_size.h"
#include "engine/kv_plan/unify.h"

namespace quire {
namespace {

struct Bucket {
  KvSpec spec;
  std::vector<std::string> layers;
};

std::vector<std::string> names_of(std::span<const LayerKvSpec> layers) {
  std::vector<std::string> names;
  for (const LayerKvSpec& layer : layers) names.push_back(layer.layer);
  return names;
}

std::vector<Bucket> by_spec(const std::vector<LayerKvSpec>& layers) {
  std::vector<Bucket> buckets;
  for (const LayerKvSpec& layer : layers) {
    auto same = std::find_if(buckets.begin(), buckets.end(),
                             [&](const Bucket& bucket) { return bucket.spec == layer.spec; });
    if (same == buckets.end()) same = buckets.insert(same, Bucket{layer.spec, {}});
    same->layers.push_back(layer.layer);
  }
  return buckets;
}

// The pool has as many tensors as the largest group has layers. Taking the largest bucket wastes
// little while the smallest is nearly as large; beyond that the smallest decides.
std::size_t group_size_for(const std::vector<Bucket>& buckets) {
  std::size_t fewest = buckets.front().layers.size(), most = fewest;
  for (const Bucket& bucket : buckets) {
    if (bucket.spec.kind == KvKind::hidden_state) continue;
    fewest = std::min(fewest, bucket.layers.size());
    most = std::max(most, bucket.layers.size());
  }
  return 2 * most < 3 * fewest ? most : fewest;
}

// Every num_groups-th layer, so that each pipeline stage has a share of each group.
std::vector<KvGroup> split(const Bucket& bucket, std::size_t group_size) {
  const std::size_t num_layers = bucket.layers.size();
  const std::size_t num_groups = (num_layers + group_size - 1) / group_size;
  std::vector<KvGroup> groups;
  for (std::size_t first = 0; first < num_groups; ++first) {
    std::vector<std::string> layers;
    for (std::size_t i = first; i < num_layers; i += num_groups) layers.push_back(bucket.layers[i]);
    groups.push_back(uniform_group(std::move(layers), bucket.spec));
  }
  return groups;
}

PlanResult<std::vector<KvGroup>> make_equal_groups(std::vector<LayerKvSpec> layers) {
  auto unified = unify_page_sizes(std::move(layers));
  if (unified.has_error()) return unified.error();
  const std::vector<Bucket> buckets = by_spec(*unified);
  const std::size_t group_size = group_size_for(buckets);
  std::vector<KvGroup> groups;
  for (const Bucket& bucket : buckets) {
    const bool alone = bucket.spec.kind == KvKind::hidden_state;
    for (KvGroup& group : split(bucket, alone ? 1 : group_size)) groups.push_back(std::move(group));
  }
  return groups;
}

PlanResult<void> check_kinds(const std::vector<LayerKvSpec>& layers) {
  for (const LayerKvSpec& layer : layers)
    if (layer.spec.kind == KvKind::cross_attention || layer.spec.kind == KvKind::encoder_only)
      return KvPlanError{KvPlanErrorCode::unsupported_kind,
                         "layer " + layer.layer + " is " + std::string(kind_name(layer.spec.kind)) +
                             "; encoder-decoder models are not supported"};
  return {};
}

}  // namespace

KvGroup uniform_group(std::vector<std::string> layers, const KvSpec& spec) {
  return {.layers = std::move(layers),
          .spec = spec,
          .layer_specs = {},
          .block_size = spec.block_size,
          .kernel_block_size = spec.block_size,
          .page_bytes = page_bytes(spec)};
}

KvGroup per_layer_group(std::span<const LayerKvSpec> layers) {
  KvGroup group = uniform_group(names_of(layers), layers.front().spec);
  group.per_layer_specs = true;
  group.page_bytes = 0;
  for (const LayerKvSpec& layer : layers) {
    group.layer_specs.push_back(layer.spec);
    group.page_bytes += page_bytes(layer.spec);
    group.mixed_kinds |= layer.spec.kind != group.spec.kind;
  }
  return group;
}

PlanResult<std::vector<KvGroup>> make_groups(std::vector<LayerKvSpec> layers,
                                             const GroupingOptions& options) {
  if (layers.empty()) return std::vector<KvGroup>{};
  if (const auto known = check_kinds(layers); known.has_error()) return known.error();
  if (!options.hybrid_manager) {
    auto unified = unify_kinds(std::move(layers));
    if (unified.has_error()) return unified.error();
    layers = std::move(*unified);
  }
  std::vector<KvSpec> specs;
  for (const LayerKvSpec& layer : layers) specs.push_back(layer.spec);
  const MergedSpec merged = merge(specs);
  if (merged.spec) return std::vector<KvGroup>{uniform_group(names_of(layers), *merged.spec)};
  if (merged.window_conflict)
    return KvPlanError{KvPlanErrorCode::window_merge,
                       "layers of one group have different attention windows"};
  if (is_uniform_type(layers)) return std::vector<KvGroup>{per_layer_group(layers)};
  const bool windowed_latents = std::any_of(layers.begin(), layers.end(), [](auto& layer) {
    return layer.spec.kind == KvKind::sliding_window_mla;
  });
  return windowed_latents ? make_latent_groups(layers, options.use_eagle)
                          : make_equal_groups(std::move(layers));
}

std::vector<KvGroup> project_groups(const std::vector<KvGroup>& groups,
                                    std::span<const LayerKvSpec> worker_layers) {
  std::unordered_set<std::string_view> mine;
  for (const LayerKvSpec& layer : worker_layers) mine.insert(layer.layer);
  std::vector<KvGroup> projected;
  for (const KvGroup& group : groups) {
    std::vector<LayerKvSpec> kept;
    for (std::size_t i = 0; i < group.layers.size(); ++i)
      if (mine.contains(group.layers[i])) kept.push_back({group.layers[i], group.spec_of(i)});
    KvGroup& part = projected.emplace_back(group);
    part.is_eagle_group = group.is_eagle_group && !kept.empty();
    part.layers = names_of(kept);
    if (!group.per_layer_specs) continue;
    part.layer_specs.clear();
    part.page_bytes = 0;
    part.mixed_kinds = false;
    if (kept.empty()) continue;
    const bool eagle = part.is_eagle_group;
    part = per_layer_group(kept);
    part.is_eagle_group = eagle;
  }
  return projected;
}

std::int64_t blocks_per_request(const std::vector<KvGroup>& groups, const KvLimits& limits) {
  std::int64_t total = 0;
  for (const KvGroup& group : groups) {
    std::int64_t most = max_blocks_per_request(group.spec, limits);
    for (const KvSpec& spec : group.layer_specs)
      most = std::max(most, max_blocks_per_request(spec, limits));
    total += most;
  }
  return total;
}

}  // namespace quire
