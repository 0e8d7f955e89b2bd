#pragma once
// Feed-forward parts: down(act(gate x) · up x), or without a gate down(act(up x)).

#include <string>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/linear.h"

namespace quire {

class GatedMlp final : public FeedForward {
 public:
  // `name` is the prefix of gate_proj, up_proj (or gate_up_proj) and down_proj.
  GatedMlp(Weights& weights, const std::string& name, int hidden_size, int intermediate_size,
           Activation activation, bool bias = false);
  // With the two published names where a family has its own.
  GatedMlp(Linear gate_up, Linear down, Activation activation)
      : gate_up_(gate_up), down_(down), activation_(activation) {}

  void operator()(TensorView out, TensorView x, const ForwardContext& context) const override;

 private:
  Linear gate_up_;
  Linear down_;
  Activation activation_;
};

class Mlp final : public FeedForward {
 public:
  Mlp(Weights& weights, const std::string& name, int hidden_size, int intermediate_size,
      Activation activation, bool bias = false);

  void operator()(TensorView out, TensorView x, const ForwardContext& context) const override;

 private:
  Linear up_;
  Linear down_;
  Activation activation_;
};

}  // namespace quire
