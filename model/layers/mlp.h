#pragma once
// Feed-forward parts: down(act(gate x) · up x), or without a gate down(act(up x)). Ranks have equal
// shares of the inner size.

#include <string>
#include <vector>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/linear.h"

namespace quire {

// A matrix of gates and then ups, `width` each, so that ranks can have shares of both.
std::vector<LinearPart> gate_up_halves(const Weights& weights, const std::string& name,
                                       std::int64_t width);

class GatedMlp final : public FeedForward {
 public:
  // `name` is the prefix of gate_proj, up_proj (or gate_up_proj) and down_proj.
  // `sum` is LinearSplit::columns, or addends where it is a part of what is added up.
  GatedMlp(Weights& weights, const std::string& name, int hidden_size, int intermediate_size,
           Activation activation, bool bias = false, LinearSplit sum = LinearSplit::columns);
  // With the two published names where a family has its own.
  GatedMlp(Linear gate_up, Linear down, Activation activation)
      : gate_up_(gate_up), down_(down), activation_(activation) {}

  void operator()(const LayerOutput& out, const LayerInput& x,
                  const ForwardContext& context) const override;

 private:
  Linear gate_up_;
  Linear down_;
  Activation activation_;
};

class Mlp final : public FeedForward {
 public:
  Mlp(Weights& weights, const std::string& name, int hidden_size, int intermediate_size,
      Activation activation, bool bias = false, LinearSplit sum = LinearSplit::columns);

  void operator()(const LayerOutput& out, const LayerInput& x,
                  const ForwardContext& context) const override;

 private:
  Linear up_;
  Linear down_;
  Activation activation_;
};

}  // namespace quire
