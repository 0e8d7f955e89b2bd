#pragma once
// Products with packed integers on tensor cores (WeightFormat::fragments); x in bf16 or f16, its
// rows at multiples of 16 bytes.

#include "cuda/kernels/expert_product.h"

namespace quire::cuda {

constexpr int kFewRows = 32;

bool fragment_product_supports(const ExpertProduct& product);

// few_fragments.cuh: one matrix and at most kFewRows rows, without activation.
void few_fragments(const ExpertProduct& product, StreamRef stream);
// fragment_mma.cuh: any.
void fragment_mma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream);

}  // namespace quire::cuda
