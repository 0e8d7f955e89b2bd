#pragma once
// How far an operator's result may be from its reference: |got − want| ≤ absolute + relative ·
// |want|. The inputs are such that results are of the order of 1.

#include "backend/dtype.h"

namespace quire::test {

struct Tolerance {
  double absolute, relative;
};

constexpr Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {1.2e-2, 1.2e-2};
    case DType::f16:
      return {1.5e-3, 1.5e-3};
    case DType::fp8_e4m3:
      return {0, 0};  // stored, not computed with: the nearest code or a wrong one
    default:
      return {2e-5, 2e-5};
  }
}

// Of f32 sums of fp8 on tensor cores, which keep fewer bits than f32 has.
inline constexpr Tolerance kFp8Sums{2e-3, 2e-3};

}  // namespace quire::test
