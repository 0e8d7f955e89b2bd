#pragma once
// The norm of a product's rows that each of its blocks takes for itself: where, and from what.

#include "backend/ops_linear.h"
#include "cuda/device/row_norm.cuh"

namespace quire::cuda {

constexpr int kFusedRows = 8;
// Beyond it the norm is a kernel of its own, 1.5 µs where it starts ahead. Before it every block
// takes the norm again, which delays its product by 0.8 µs for a row of 2,048, 1.6 for one of 4,096
// and 2.2 for one of 6,144 (predicted, tests/perf/cuda_model.py; a device has to say).
constexpr std::int64_t kMostNormed = 6144;

inline bool block_can_norm(const FusedLinearArgs& c) {
  return c.x.dtype() == DType::f32 && is_wide(c.x) && is_wide(c.norm_weight) &&
         c.x.extent(0) <= kFusedRows && c.x.numel() <= kMostNormed;
}

// Of x as it is, or as the norm leaves it.
inline DType multiplied_dtype(const FusedLinearArgs& c) {
  return c.norm_weight.empty() ? c.x.dtype() : c.norm_weight.dtype();
}

template <class T>
BlockNorm<T> block_norm(const FusedLinearArgs& c) {
  if (c.norm_weight.empty()) return {};
  return {.x = static_cast<const float*>(c.x.data()),
          .weight = static_cast<const T*>(c.norm_weight.data()),
          .x_stride = c.x.stride(0),
          .inverse_width = 1.f / static_cast<float>(c.x.extent(1)),
          .eps = c.norm_eps,
          .weight_offset = c.norm_offset};
}

// Of dynamic shared memory.
template <class T>
std::size_t normed_bytes(const FusedLinearArgs& c) {
  if (c.norm_weight.empty()) return 0;
  return static_cast<std::size_t>(c.x.extent(0) * normed_pitch(static_cast<int>(c.x.extent(1)))) *
         sizeof(T);
}

}  // namespace quire::cuda
