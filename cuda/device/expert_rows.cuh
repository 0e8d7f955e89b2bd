#pragma once
// Which rows a block of an expert product reads and writes (cuda/kernels/expert_product.h).

#include "cuda/device/activation.cuh"
#include "cuda/device/any_view.cuh"
#include "cuda/kernels/expert_product.h"

namespace quire::cuda {

struct ExpertBlock {
  const ExpertTile* tiles;  // null: one expert
  const std::int32_t *num_tiles, *pairs;
  ExpertRows rows;
  int top_k, num_rows, tile_tokens;

  ExpertBlock(const ExpertProduct& product, const ExpertPlan& plan)
      : tiles(plan.tiles),
        num_tiles(plan.num_tiles),
        pairs(plan.pairs),
        rows(product.rows),
        top_k(product.top_k),
        num_rows(static_cast<int>(product.out.extent(0))),
        tile_tokens(plan.tile_tokens) {}

  // Empty beyond the last tile.
  __device__ __forceinline__ ExpertTile tile(int index) const {
    if (tiles != nullptr) return index < *num_tiles ? tiles[index] : ExpertTile{0, 0, 0};
    return {0, index * tile_tokens, min((index + 1) * tile_tokens, num_rows)};
  }
  __device__ __forceinline__ int x_row(int at) const {
    return rows == ExpertRows::gather ? pairs[at] / top_k : at;
  }
  __device__ __forceinline__ int out_row(int at) const {
    return rows == ExpertRows::scatter ? pairs[at] : at;
  }
};

// From sums to what is stored.
struct ExpertOutput {
  AnyView out, bias;
  int columns;  // of out
  bool activates, gated;
  Activation activation;
  float alpha, limit;

  explicit ExpertOutput(const ExpertProduct& product)
      : out(product.out),
        bias(product.bias),
        columns(static_cast<int>(product.out.extent(1))),
        activates(product.activates),
        gated(product.gated),
        activation(product.activation),
        alpha(product.swiglu_alpha),
        limit(product.swiglu_limit) {}

  struct Bias {
    float own, up;  // up: of the other half's row; only gated
  };
  __device__ __forceinline__ Bias bias_of(int expert, int column) const {
    if (bias.data == nullptr) return {0.f, 0.f};
    return {bias.load(0, expert, column), gated ? bias.load(0, expert, columns + column) : 0.f};
  }
  // up: the sum of the other half's row; only gated.
  __device__ __forceinline__ float finish(float sum, float up) const {
    if (gated) {
      sum = activate_gated(activation, sum, up, alpha, limit);
    } else if (activates) {
      sum = activate(activation, sum);
    }
    return sum;
  }
  __device__ __forceinline__ void store(int expert, int row, int column, float sum,
                                        float up) const {
    if (bias.data != nullptr) {
      sum += bias.load(0, expert, column);
      if (gated) up += bias.load(0, expert, columns + column);
    }
    out.store(0, row, column, finish(sum, up));
  }
};

}  // namespace quire::cuda
