#pragma once
// The sum that every layer adds to, and the norm of it that the next part reads. What a product has
// not added is added where the norm is taken: one pass over both.

#include "model/layers/layer_io.h"

namespace quire {

class ResidualStream {
 public:
  // sum [T, hidden] holds the embeddings; normed [T, hidden] is overwritten; products may add to
  // the sum where what they make is not changed first. What is taken of the workspace is given back
  // at the end.
  ResidualStream(TensorView sum, TensorView normed, bool products_add,
                 const ForwardContext& context)
      : scope_(context.workspace),
        context_(context),
        sum_(sum),
        normed_(normed),
        update_(context.workspace.take(DType::f32, {normed.extent(0), normed.extent(1)})),
        products_add_(products_add),
        input_(normed),
        output_(update_) {}

  TensorView sum() const { return sum_; }
  const LayerInput& input() const { return input_; }     // what the next part reads
  const LayerOutput& output() const { return output_; }  // where it leaves what to add
  TensorView update() const { return update_; }          // f32 [T, hidden], unless that is added

  void norm(const RmsNorm& norm) { begin_part(LayerInput(normed_, sum_, norm)); }
  // sum += update, unless that is done; the next part reads norm(sum).
  void add_and_norm(const RmsNorm& norm) {
    if (output_.added()) return this->norm(norm);
    norm.add(normed_, sum_, update_, context_);
    begin_part(LayerInput(normed_));
  }

 private:
  void begin_part(const LayerInput& input) {
    input_ = input;
    output_ = products_add_ ? LayerOutput(update_, sum_) : LayerOutput(update_);
  }

  const Workspace::Scope scope_;
  const ForwardContext& context_;
  const TensorView sum_, normed_, update_;
  const bool products_add_;
  LayerInput input_;
  LayerOutput output_;
};

}  // namespace quire
