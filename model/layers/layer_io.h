#pragma once
// What a part of a layer reads and where it leaves its result. Between the parts of a decoder lies
// the residual stream; a product may take its norm, or add to it, without a kernel of its own, and
// whoever asks for rows gets them.

#include "model/forward_context.h"
#include "model/layers/norm.h"

namespace quire {

class LayerInput {
 public:
  LayerInput(TensorView rows) : rows_(rows) {}  // as they are
  // norm(sum), to be written to `rows` where they are asked for.
  LayerInput(TensorView rows, TensorView sum, const RmsNorm& norm)
      : rows_(rows), sum_(sum), norm_(&norm) {}

  std::int64_t tokens() const { return rows_.extent(0); }
  DType dtype() const { return rows_.dtype(); }
  // [T, hidden], made at the first call.
  TensorView rows(const ForwardContext& context) const {
    if (norm_ != nullptr) (*norm_)(rows_, sum_, context);
    norm_ = nullptr;
    return rows_;
  }
  // The norm that rows() would take of sum(); null where there is none, or once rows() was called.
  const RmsNorm* norm() const { return norm_; }
  TensorView sum() const { return sum_; }

 private:
  TensorView rows_, sum_;
  mutable const RmsNorm* norm_ = nullptr;
};

class LayerOutput {
 public:
  LayerOutput(TensorView update) : update_(update) {}  // f32 [T, hidden], to be written
  // A product may be added to `sum` instead.
  LayerOutput(TensorView update, TensorView sum) : update_(update), sum_(sum) {}

  std::int64_t hidden() const { return update_.extent(1); }
  TensorView update() const { return update_; }
  TensorView sum() const { return sum_; }  // empty: there is no such sum
  bool added() const { return added_; }
  void set_added() const { added_ = true; }

 private:
  TensorView update_, sum_;
  mutable bool added_ = false;
};

}  // namespace quire
