#pragma once
// Products with packed integers on tensor cores (WeightFormat::fragments); x in bf16 or f16, its
// rows at multiples of 16 bytes.

#include "cuda/kernels/expert_product.h"

namespace quire::cuda {

constexpr int kFewRows = 32;

bool fragment_product_supports(const ExpertProduct& product);

// fragment_mma.cuh: any.
void fragment_mma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream);

}  // namespace quire::cuda
