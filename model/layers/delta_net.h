#pragma once
// Gated delta net (arXiv 2412.06464) as Qwen3-Next and Qwen3.5 have it: a short causal convolution,
// then a matrix state per value head that is decayed and corrected token by token. Ranks have equal
// shares of the value heads, with their keys and states.

#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/causal_conv.h"
#include "model/layers/linear.h"
#include "model/layers/norm.h"

namespace quire {

class DeltaNet final : public Mixer {
 public:
  // `name` is "model.layers.0.linear_attn".
  DeltaNet(Weights& weights, const ModelConfig& config, const std::string& name);

  LayerKvSpec cache_spec(const KvSpecOptions& options) const override;
  void bind(const LayerCache& cache) override;
  void operator()(const LayerOutput& out, const LayerInput& x,
                  const ForwardContext& context) const override;

 private:
  void recur(TensorView out, TensorView qkv, TensorView b, TensorView a,
             const ForwardContext& context) const;

  std::vector<std::int64_t> state_shape() const;

  std::string name_;
  DeltaNetConfig config_;  // with the heads that the rank has
  std::optional<DType> state_dtype_;
  Linear input_;  // q, k, v, z, b, a
  CausalConv conv_;
  TensorView a_log_, dt_bias_;  // f32 [value heads]
  RmsNorm norm_;
  Linear output_;
  TensorView delta_state_;  // [blocks, value heads, key dim, value dim]
  int group_ = 0;
};

}  // namespace quire
