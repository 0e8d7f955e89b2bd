#pragma once
// e4m3 in the 16-bit type of the tensor cores, which holds each of its values.

#include "cuda/device/typed_mma.cuh"
#include "cuda/device/vec.cuh"

namespace quire::cuda {

constexpr int kCodes = 8;  // at a time: 16 bytes of T, so that eight lanes fill the banks once

// Two of T, adjacent in a register.
template <class T>
__device__ __forceinline__ std::uint32_t wide_pair(__nv_fp8x2_e4m3 codes) {
  if constexpr (std::is_same_v<T, __half>) {
    return bits_of(static_cast<__half2>(codes));
  } else {
    const auto pair = static_cast<float2>(codes);
    return pack<T>(pair.x, pair.y);
  }
}

// Four codes of a register.
template <class T>
__device__ __forceinline__ FragmentB wide_pairs(std::uint32_t codes) {
  __nv_fp8x2_e4m3 pairs[2];
  memcpy(pairs, &codes, sizeof pairs);
  return {{wide_pair<T>(pairs[0]), wide_pair<T>(pairs[1])}};
}

// kCodes of them, aligned to the whole; NaN stays NaN.
template <class T>
__device__ __forceinline__ Vec<std::uint32_t, kCodes / 2> wide_codes(const __nv_fp8_e4m3* from) {
  const auto codes = *reinterpret_cast<const Vec<__nv_fp8x2_e4m3, kCodes / 2>*>(from);
  Vec<std::uint32_t, kCodes / 2> wide;
#pragma unroll
  for (int i = 0; i < kCodes / 2; ++i) wide.at[i] = wide_pair<T>(codes.at[i]);
  return wide;
}
// to[i] = from[i]. Both are aligned to the whole of the elements.
template <class T>
__device__ __forceinline__ void widen(T* to, const __nv_fp8_e4m3* from) {
  *reinterpret_cast<Vec<std::uint32_t, kCodes / 2>*>(to) = wide_codes<T>(from);
}

}  // namespace quire::cuda
