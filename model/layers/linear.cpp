#include "model/layers/linear.h"

namespace quire {

Linear::Linear(Weights& weights, const std::vector<LinearPart>& parts, std::int64_t columns,
               bool bias) {
  std::vector<Source> matrices, biases;
  std::int64_t rows = 0;
  for (const LinearPart& part : parts) {
    matrices.push_back(
        {.name = part.name + ".weight", .shape = {part.rows, columns}, .pick = part.pick});
    // A bias is one row: picking rows of the matrix is picking columns of it.
    biases.push_back({.name = part.name + ".bias",
                      .shape = {part.rows},
                      .transposed = !part.pick.empty(),
                      .pick = part.pick});
    rows += part.pick.empty() ? part.rows : static_cast<std::int64_t>(part.pick.size());
  }
  weight_ = weights.load(matrices, {rows, columns}, weights.dtype());
  if (bias) bias_ = weights.load(biases, {rows}, weights.dtype());
}

void Linear::operator()(TensorView out, TensorView x, const ForwardContext& context) const {
  context.ops.linear(out, x, weight_, bias_, context.stream);
}

}  // namespace quire
