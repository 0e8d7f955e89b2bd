#pragma once
// Products with packed integers on tensor cores (WeightFormat::fragments); x in bf16 or f16, its
// rows at multiples of 16 bytes.

#include "cuda/kernels/expert_product.h"

namespace quire::cuda {

constexpr int kFewRows = 32;

bool fragment_product_supports(const ExpertProduct& product);

// Tokens of a tile of many, as many as find room in this device's shared memory: kManyTileTokens,
// or kSomeTileTokens of 8 bits in 99 KiB.
int fragment_tile_tokens(const GroupFormat& format);

// fragment_mma.cuh: any number of rows, in a plan's tiles of at most fragment_tile_tokens().
void fragment_mma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream);

}  // namespace quire::cuda
