#pragma once
// Tensor core products by element type: bf16 or f16.

#include "cuda/device/mma.cuh"

namespace quire::cuda {

template <class T>
__device__ __forceinline__ void mma(FragmentC& d, const FragmentA& a, const FragmentB& b) {
  if constexpr (std::is_same_v<T, __half>) {
    mma_f16(d, a, b);
  } else {
    mma_bf16(d, a, b);
  }
}
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const T pair[2] = {T(low), T(high)};
  return *reinterpret_cast<const std::uint32_t*>(pair);
}

}  // namespace quire::cuda
