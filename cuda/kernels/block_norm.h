#pragma once
// The norm of a product's rows that each of its blocks takes for itself: where, and from what.

#include "backend/ops_linear.h"
#include "cuda/device/row_norm.cuh"

namespace quire::cuda {

constexpr int kFusedRows = 8;
// Beyond it a norm of its own is quicker: every block takes it again before it reads on, for 0.4 µs
// of a row of 4,096 and 1.3 of three of 2,048 or six of 1,024, but 3.3 of four of 4,096; the kernel
// that it saves is 1.5 where it starts ahead (predicted, tests/perf/cuda_model.py).
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
