#pragma once
// The sum that every layer adds to, and the norm of it that the next part reads. A norm is taken
// where the sum is made: one pass over both.

#include "model/forward_context.h"
#include "model/layers/norm.h"

namespace quire {

class ResidualStream {
 public:
  // sum [T, hidden] holds the embeddings; normed [T, hidden] is overwritten. What update() takes of
  // the workspace is given back at the end.
  ResidualStream(TensorView sum, TensorView normed, const ForwardContext& context)
      : scope_(context.workspace),
        context_(context),
        sum_(sum),
        normed_(normed),
        update_(context.workspace.take(DType::f32, {normed.extent(0), normed.extent(1)})) {}

  TensorView sum() const { return sum_; }
  TensorView normed() const { return normed_; }  // what the next part reads
  TensorView update() const { return update_; }  // f32 [T, hidden]: where it leaves what to add

  void norm(const RmsNorm& norm) const { norm(normed_, sum_, context_); }
  // sum += update; normed = norm(sum).
  void add_and_norm(const RmsNorm& norm) const { norm.add(normed_, sum_, update_, context_); }

 private:
  const Workspace::Scope scope_;
  const ForwardContext& context_;
  const TensorView sum_, normed_, update_;
};

}  // namespace quire
