#include "model/layers/cache_scale.h"

#include <cmath>
#include <vector>

#include "base/error.h"

namespace quire {

namespace {

std::optional<float> first_scale(const Weights& weights, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::optional<float> scale = weights.number(name);
    if (!scale) continue;
    if (std::isfinite(*scale) && *scale > 0.f) return scale;
    throw Failure(ErrorCode::invalid_argument,
                  "tensor \"" + name + "\" is " + std::to_string(*scale) +
                      "; the scale of a KV cache must be finite and above 0");
  }
  return {};
}

std::vector<std::string> names_of(const std::string& attention, const std::string& which) {
  const std::string scale = "." + which + "_scale", projection = "." + which + "_proj";
  return {attention + scale,
          attention + ".attn" + scale,
          attention + projection + scale,            // ModelOpt
          attention + projection + ".output_scale",  // compressed-tensors
          attention + ".qkv_proj" + scale,
          attention + ".kv_scale",
          attention + ".attn.kv_scale"};
}

}  // namespace

std::optional<CacheScale> load_cache_scale(const Weights& weights, const std::string& attention) {
  const auto k = first_scale(weights, names_of(attention, "k"));
  const auto v = first_scale(weights, names_of(attention, "v"));
  if (!k && !v) return {};
  return CacheScale{.k = k ? *k : *v, .v = v ? *v : *k};
}

}  // namespace quire
