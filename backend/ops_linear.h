#pragma once
// Arguments of a product that does at once what else has operators of its own beside it.

#include <optional>

#include "backend/ops_moe.h"

namespace quire {

// out = x · weightᵀ (+ bias), with x normed before, or the product added or activated behind; [T] =
// tokens, [N, K] = the weight.
struct FusedLinearArgs {
  TensorView out;  // [T, N]; with an activation [T, N / 2]; f32 where it is added to
  TensorView x;    // [T, K] as the weight or, with fp8 and packed integers, bf16 or f16
  Weight weight;
  TensorView bias = {};  // [N], optional
  // Optional, [K]: x f32, and the product is of rms_norm(x), rounded to norm_weight's dtype.
  TensorView norm_weight = {};
  float norm_eps = 0.f, norm_offset = 0.f;
  // Of the first half of the product's columns, times the other; both are rounded to out's dtype.
  // Not beside a bias, nor of packed integers.
  std::optional<Activation> activation = {};
  bool adds = false;  // out += the product
};

}  // namespace quire
