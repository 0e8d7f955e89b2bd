#pragma once
// Products of tokens with the matrices of the experts they were sent to. Pairs (token, choice) are
// sorted by expert on the device and cut into tiles; a block computes some columns of one tile, so
// the work is that of the experts in use. With no plan: all rows with one matrix.

#include <cuda_runtime.h>

#include "backend/ops.h"
#include "cuda/expert_scratch.h"

namespace quire::cuda {

struct ExpertPlan {
  ExpertTile* tiles = nullptr;
  std::int32_t* num_tiles = nullptr;
  std::int32_t* pairs = nullptr;  // token · top_k + choice, sorted by expert
  int max_tiles = 0;
  int tile_tokens = 0;
};

enum class ExpertRows : std::uint8_t {
  gather,   // x [T, K] at the pair's token, out [pairs, N] in sorted order
  scatter,  // x [pairs, K] in sorted order, out [pairs, N] at the pair
  plain     // x [T, K], out [T, N]; without a plan
};

// out = x · weightᵀ + bias, then the activation if there is one; gated: of the two halves of the
// weight's rows.
struct ExpertProduct {
  TensorView out, x;
  TensorView x_scales = {};  // of x in fp8: f32 [⌈K / 128⌉, rows of x]
  Weight weight;
  TensorView bias;  // [E, rows], optional; plain: [rows]
  ExpertRows rows = ExpertRows::plain;
  int top_k = 1;
  bool activates = false, gated = false;
  bool interleaves = false;  // out's columns as warpgroups take x beside MXFP4 (interleave_groups)
  Activation activation = Activation::silu;
  float swiglu_alpha = 1.702f, swiglu_limit = 7.f;
};

// bf16 and f16 on tensor cores; fp8 with either, MXFP4 with bf16.
bool expert_product_mma_supports(const ExpertProduct& product);
// The most tokens of a tile that find room in this device's shared memory beside the scales of a
// block's rows: kManyTileTokens, or kFewTileTokens.
int expert_tile_tokens(const ExpertProduct& product);
void expert_product_mma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream);

// Hopper, many tokens of an expert, with a plan: rows in bf16 or f16 and weights of that dtype,
// both in fp8 with scales for each 128 of K, or bf16 interleaved and MXFP4. out in bf16 or f16.
bool expert_product_wgmma_supports(const ExpertProduct& product);
void expert_product_wgmma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream);

// Any dtypes, widths and alignments.
void expert_product_simt(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream);

}  // namespace quire::cuda
