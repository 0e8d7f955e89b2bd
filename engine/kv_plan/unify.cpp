#include "engine/kv_plan/unify.h"

#include <algorithm>

namespace quire {
namespace {

bool keeps_all(KvKind kind) {
  return kind == KvKind::full || kind == KvKind::mla || kind == KvKind::hidden_state;
}

bool is_sliding(KvKind kind) {
  return kind == KvKind::sliding_window || kind == KvKind::sliding_window_mla;
}

bool same_type(const KvSpec& first, const KvSpec& other) {
  if (first.block_size != other.block_size) return false;
  switch (first.kind) {
    case KvKind::full:
    case KvKind::mla:
    case KvKind::hidden_state:
      return keeps_all(other.kind);
    case KvKind::sliding_window:
      return is_sliding(other.kind) && first.sliding_window == other.sliding_window;
    case KvKind::mamba:
      return other.kind == first.kind &&
             first.num_speculative_blocks == other.num_speculative_blocks;
    default:
      return other.kind == first.kind && first.sliding_window == other.sliding_window &&
             first.attention_chunk_size == other.attention_chunk_size;
  }
}

// What the layer would be if it kept every token.
KvSpec keeping_all(KvSpec spec, int full_block_size) {
  if (spec.kind == KvKind::sliding_window || spec.kind == KvKind::chunked_local) {
    spec.kind = KvKind::full;
  } else if (spec.kind == KvKind::sliding_window_mla) {
    spec.kind = KvKind::mla;
    spec.block_size = full_block_size;
    spec.sliding_window = 0;
  }
  return spec;
}

// Empty: the layers can share one table.
PlanResult<void> check_unified(const std::vector<LayerKvSpec>& layers) {
  std::vector<KvSpec> specs;
  for (const LayerKvSpec& layer : layers) specs.push_back(layer.spec);
  const MergedSpec merged = merge(specs);
  if (merged.spec || is_uniform_type(layers)) return {};
  if (merged.window_conflict)
    return KvPlanError{KvPlanErrorCode::window_merge,
                       "layers of one group have different attention windows"};
  return KvPlanError{KvPlanErrorCode::hma_off_unify,
                     "the model's layers (" + std::string(kind_name(layers.front().spec.kind)) +
                         " and others) cannot share one block table; remove "
                         "CacheConfig::hybrid_manager=false"};
}

}  // namespace

bool is_uniform_type(const std::vector<LayerKvSpec>& layers) {
  const KvSpec& first = layers.front().spec;
  return std::all_of(layers.begin(), layers.end(),
                     [&](const LayerKvSpec& layer) { return same_type(first, layer.spec); });
}

PlanResult<std::vector<LayerKvSpec>> unify_kinds(std::vector<LayerKvSpec> layers) {
  if (check_unified(layers).has_value()) return layers;
  const auto full = std::find_if(layers.begin(), layers.end(),
                                 [](auto& layer) { return keeps_all(layer.spec.kind); });
  if (full != layers.end()) {
    const int block_size = full->spec.block_size;
    for (LayerKvSpec& layer : layers) layer.spec = keeping_all(layer.spec, block_size);
  }
  const PlanResult<void> unified = check_unified(layers);
  if (unified.has_error()) return unified.error();
  return layers;
}

}  // namespace quire
