#pragma once
// Mamba2 (arXiv 2405.21060): a short causal convolution, then a selective scan with one decay per
// head. Ranks have equal shares of the heads, with their groups and states.

#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/causal_conv.h"
#include "model/layers/linear.h"
#include "model/layers/norm.h"

namespace quire {

class Mamba2 final : public Mixer {
 public:
  // `name` is "backbone.layers.0.mixer"; the gated norm is over each of norm_groups parts.
  Mamba2(Weights& weights, const ModelConfig& config, const std::string& name, int norm_groups);

  LayerKvSpec cache_spec(const KvSpecOptions& options) const override;
  void bind(const LayerCache& cache) override;
  void operator()(const LayerOutput& out, const LayerInput& x,
                  const ForwardContext& context) const override;

 private:
  void scan(TensorView out, TensorView xbc, TensorView dt, const ForwardContext& context) const;
  // out [T, inner] = norm(x · silu(z)); x f32 [T, heads, head dim], z [T, inner].
  void gated_norm(TensorView out, TensorView x, TensorView z, const ForwardContext& context) const;
  std::int64_t inner() const { return std::int64_t{config_.num_heads} * config_.head_dim; }

  std::vector<std::int64_t> state_shape() const;

  std::string name_;
  Shard shard_;
  Mamba2Config config_;  // with the heads and groups that the rank has
  std::optional<DType> state_dtype_;
  int norm_groups_;  // of the rank's, if it has whole ones
  int norm_ranks_;   // that have a part of the same group of the norm
  Linear input_;  // z, x, b, c, dt
  CausalConv conv_;
  TensorView a_log_, dt_bias_;  // f32 [heads]
  TensorView d_skip_;           // f32 [heads]
  RmsNorm norm_;
  Linear output_;
  TensorView scan_state_;  // [blocks, heads, head dim, state size]
  int group_ = 0;
};

}  // namespace quire
