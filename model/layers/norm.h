#pragma once
// Root-mean-square norm with a learnt weight; Gemma and Qwen3-Next publish weight − 1 (offset 1).

#include <string>
#include <vector>

#include "model/forward_context.h"
#include "model/weights.h"

namespace quire {

class RmsNorm {
 public:
  RmsNorm() = default;
  // Of the weight's elements those picked, in that order; empty: all.
  RmsNorm(Weights& weights, const std::string& name, std::int64_t width, double eps,
          float offset = 0.f, const std::vector<std::int64_t>& pick = {})
      : weight_(load_picked(weights, name + ".weight", width, pick, weights.dtype())),
        eps_(static_cast<float>(eps)),
        offset_(offset) {}

  // out may be x.
  void operator()(TensorView out, TensorView x, const ForwardContext& context) const {
    context.ops.rms_norm(out, x, weight_, eps_, offset_, context.stream);
  }
  // residual += x; out = norm(residual).
  void add(TensorView out, TensorView residual, TensorView x, const ForwardContext& context) const {
    context.ops.add_rms_norm(out, residual, x, weight_, eps_, offset_, context.stream);
  }
  bool empty() const { return weight_.empty(); }
  TensorView weight() const { return weight_; }
  float eps() const { return eps_; }
  float offset() const { return offset_; }

 private:
  TensorView weight_;
  float eps_ = 0.f;
  float offset_ = 0.f;
};

}  // namespace quire
