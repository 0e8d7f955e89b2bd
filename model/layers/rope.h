#pragma once
// Rotary position embedding: the table of cosines and sines for a published scaling rule.

#include "model/config.h"
#include "model/forward_context.h"
#include "model/weights.h"

namespace quire {

class Rope {
 public:
  Rope() = default;  // rotates nothing
  // For heads of `dim` dimensions and positions below max_len.
  Rope(Weights& weights, const RopeConfig& config, int dim, int max_len,
       RopeStyle style = RopeStyle::halves);

  // In place on x [T, heads, ≥ rotary dimensions].
  void operator()(TensorView x, const ForwardContext& context) const {
    if (table_.empty()) return;
    context.ops.rope(x, context.positions, table_, style_, context.stream);
  }

  // Empty: rotates nothing.
  TensorView table() const { return table_; }
  RopeStyle style() const { return style_; }

  // longrope: the rows of the table that a request with such a prompt uses begin here.
  int position_offset(int num_prompt_tokens) const {
    return num_prompt_tokens > short_len_ ? long_offset_ : 0;
  }

 private:
  TensorView table_;  // f32 [positions, rotary]: cos then sin
  RopeStyle style_ = RopeStyle::halves;
  int short_len_ = 0;
  int long_offset_ = 0;
};

// As config.json says, for the part of a head that rotates; positions below max_len.
Rope make_rope(Weights& weights, const ModelConfig& config, int max_len);

// yarn's attention temperature: 0.1 · mscale · ln(factor) + 1.
double yarn_mscale(double factor, double mscale);

}  // namespace quire
