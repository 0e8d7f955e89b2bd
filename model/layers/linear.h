#pragma once
// y = x · Wᵀ (+ b). Several published matrices with the same input can be one here.

#include <string>
#include <vector>

#include "model/forward_context.h"
#include "model/weights.h"

namespace quire {

// Published rows of one matrix: name + ".weight" and, with a bias, name + ".bias".
struct LinearPart {
  std::string name;
  std::int64_t rows;
  std::vector<std::int64_t> pick = {};  // the order of rows wanted; empty: as published
};

class Linear {
 public:
  Linear() = default;
  Linear(Weights& weights, const std::vector<LinearPart>& parts, std::int64_t columns, bool bias);

  // out [T, rows()], x [T, columns]
  void operator()(TensorView out, TensorView x, const ForwardContext& context) const;
  std::int64_t rows() const { return weight_.extent(0); }
  bool empty() const { return weight_.empty(); }

 private:
  TensorView weight_;  // [rows, columns]
  TensorView bias_;    // [rows]
};

}  // namespace quire
