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
template <class Pair>
__device__ __forceinline__ std::uint32_t bits_of(const Pair& pair) {
  static_assert(sizeof pair == 4);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    return bits_of(__floats2half2_rn(low, high));
  } else {
    return bits_of(__floats2bfloat162_rn(low, high));
  }
}

}  // namespace quire::cuda
