#pragma once
// The scales of an attention layer's fp8 cache, where a checkpoint gives them.

#include <optional>
#include <string>

#include "backend/ops.h"
#include "model/weights.h"

namespace quire {

// `attention` is "model.layers.0.self_attn". Under the names that vLLM reads: of the attention, of
// the projections, or kv_scale for both; where only one of the two is given, it is the other's too.
// Failure where a scale is not a finite number above 0.
std::optional<CacheScale> load_cache_scale(const Weights& weights, const std::string& attention);

}  // namespace quire
