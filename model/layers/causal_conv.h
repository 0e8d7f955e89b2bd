#pragma once
// The short convolution before a recurrence, one filter per channel, with the last inputs of a
// request as its state.

#include <cstdint>
#include <string>
#include <vector>

#include "model/forward_context.h"
#include "model/model.h"
#include "model/shard.h"
#include "model/weights.h"

namespace quire {

class CausalConv {
 public:
  CausalConv() = default;
  // `name` is "model.layers.0.linear_attn.conv1d". Of its channels those picked; empty: all.
  CausalConv(Weights& weights, const std::string& name, std::int64_t channels, int width, bool bias,
             const std::vector<std::int64_t>& pick = {});

  // Its state is the layer's first. Throws Failure where that is no [width − 1, channels].
  void bind(const LayerCache& cache, const std::string& layer);
  std::int64_t channels() const { return weight_.extent(0); }
  // Of those that there are, where only some were picked.
  const std::vector<Range>& own_channels() const { return own_; }
  int width() const { return static_cast<int>(weight_.extent(1)); }

  // silu of the convolution, in the workspace; x [T, channels], rows may be strided.
  TensorView operator()(TensorView x, const ForwardContext& context) const;

 private:
  TensorView weight_;  // [channels, width]
  TensorView bias_;    // [channels], optional
  TensorView state_;   // [blocks, width − 1, channels]
  std::vector<Range> own_;
  int group_ = 0;
};

}  // namespace quire
