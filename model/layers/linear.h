#pragma once
// y = x · Wᵀ (+ b). Several published matrices with the same input can be one here.

#include <cstdint>
#include <string>
#include <vector>

#include "model/layers/layer_io.h"
#include "model/weights.h"

namespace quire {

// Published rows of one matrix: name + ".weight" and, with a bias, name + ".bias".
struct LinearPart {
  std::string name;
  std::int64_t rows;
  std::vector<std::int64_t> pick = {};  // the order of rows wanted; empty: as published
  int copies = 1;  // neighbouring ranks that have the same of its rows, with LinearSplit::rows

  std::int64_t wanted() const {
    return pick.empty() ? rows : static_cast<std::int64_t>(pick.size());
  }
};

// What the products are for: the dtype of what they are written to, which a bias shares.
enum class LinearUse : std::uint8_t {
  inner,     // the model's dtype
  residual,  // f32: added to the residual stream
  router,    // f32 logits; published as they are even where other matrices are quantized
  head,      // f32 logits over the vocabulary; never in fp8
};

// What a rank has of the matrix.
enum class LinearSplit : std::uint8_t {
  none,     // all of it: ranks compute the same
  rows,     // of each part an equal share of the rows: ranks compute parts of the output
  columns,  // an equal share of the columns, for an input that is divided so: ranks add up
  addends,  // likewise, but it is left to the caller to add up
};

class Linear {
 public:
  Linear() = default;
  Linear(Weights& weights, const std::vector<LinearPart>& parts, std::int64_t columns, bool bias,
         LinearUse use = LinearUse::inner, LinearSplit split = LinearSplit::none);

  // out [T, rows()], x [T, columns], or what the rank has of them
  void operator()(TensorView out, const LayerInput& x, const ForwardContext& context) const;
  // The same, added to out's sum where the backend and ranks allow it.
  void leave(const LayerOutput& out, TensorView x, const ForwardContext& context) const;
  // out [T, rows() / 2] = act(gates) · ups of the product, whose first half are gates. False, with
  // nothing done but x's rows: the backend does both one after the other.
  bool gated(TensorView out, const LayerInput& x, Activation activation,
             const ForwardContext& context) const;
  // out[t] = row ids[t] − first of the matrix, which stays packed, or zeros where it has no such
  // row; out [T, columns], ids i32 [T].
  void look_up(TensorView out, TensorView ids, std::int64_t first,
               const ForwardContext& context) const;
  std::int64_t rows() const { return rows_; }
  bool empty() const { return pieces_.empty(); }

 private:
  // Neighbouring parts of one format, whose scales can be one array: usually all there are.
  struct Piece {
    Weight weight;    // [rows, columns]
    TensorView bias;  // [rows], optional
    std::int64_t begin, end;
  };

  bool fused(FusedLinearArgs args, const LayerInput& x, const ForwardContext& context) const;
  void multiply(TensorView out, TensorView x, const ForwardContext& context) const;

  std::vector<Piece> pieces_;
  bool adds_up_ = false;  // over ranks
  std::int64_t rows_ = 0;
};

// What is added once by ranks that add up is rank 0's.
inline bool adds_bias(const Shard& shard) { return shard.rank == 0; }
// out f32, dense = the sum over ranks.
void add_up(TensorView out, const ForwardContext& context);
// f32 [T, ranks · columns], in the workspace: x [T, columns] of all ranks side by side.
TensorView all_columns(TensorView x, const Shard& shard, const ForwardContext& context);

}  // namespace quire
