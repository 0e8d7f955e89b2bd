#pragma once
// Microscaling FP4 (OCP MX 1.0): 32 e2m1 values share a power of two.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

constexpr int kMxGroup = 32, kMxGroupBytes = 16;

// 2^(exponent − 127); 0 is a subnormal, 255 is NaN in the format.
__device__ __forceinline__ float mx_scale(std::uint8_t exponent) {
  if (exponent == 0) return 5.877471754e-39f;
  return __uint_as_float(exponent == 255 ? 0x7fffffffu : static_cast<unsigned>(exponent) << 23);
}

// Without the scale.
__device__ __forceinline__ float e2m1_value(unsigned nibble) {
  const unsigned magnitude = nibble & 7u;
  const unsigned bits =
      magnitude < 2 ? (magnitude != 0 ? 0x3f000000u : 0u) : 0x3f000000u + (magnitude << 22);
  return __uint_as_float(bits | (nibble & 8u) << 28);
}

// Of eight nibbles, numbers kPair and kPair + 4 as a pair of bf16. In the bits of a bf16, e2m1 is
// the same number times 2^−126, subnormals included.
template <int kPair>
__device__ __forceinline__ std::uint32_t e2m1_pair(std::uint32_t nibbles) {
  constexpr int kSign = 12 - 4 * kPair, kMagnitude = 6 - 4 * kPair;
  const std::uint32_t sign = nibbles << kSign & 0x80008000u;
  const std::uint32_t magnitude =
      (kMagnitude >= 0 ? nibbles << (kMagnitude & 31) : nibbles >> (-kMagnitude & 31)) &
      0x01c001c0u;
  const std::uint32_t bits = sign | magnitude;
  __nv_bfloat162 tiny;
  memcpy(&tiny, &bits, sizeof bits);
  const __nv_bfloat16 raise(8.507059173e37f);  // 2^126
  const __nv_bfloat162 pair = __hmul2(tiny, __nv_bfloat162{raise, raise});
  std::uint32_t result;
  memcpy(&result, &pair, sizeof result);
  return result;
}

}  // namespace quire::cuda
