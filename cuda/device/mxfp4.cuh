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

// What makes scales of a row relative to its largest, as e2m1_pair takes them: to be added to these
// exponents of bf16, of which the largest becomes 254. A row with a 255 is NaN whatever the others.
__device__ __forceinline__ std::uint32_t relative_step(int largest) {
  return largest == 255 ? 0u : static_cast<std::uint32_t>(254 - largest);
}
// By what sums of such products are to be multiplied: 2^(largest − 127), less the 2 that is in
// them.
__device__ __forceinline__ float relative_scale(int largest) {
  return .5f * mx_scale(static_cast<std::uint8_t>(largest));
}

__device__ __forceinline__ __nv_bfloat162 pair_of_bits(std::uint32_t bits) {
  __nv_bfloat162 pair;
  memcpy(&pair, &bits, sizeof bits);
  return pair;
}

// Of eight nibbles, numbers kPair and kPair + 4 as a pair of bf16, scaled. In the bits of a bf16,
// e2m1 is the same number times 2^−126, subnormals included; `scale` is a power of two by its
// exponent, a pair of it.
template <int kPair>
__device__ __forceinline__ std::uint32_t e2m1_pair(std::uint32_t nibbles, __nv_bfloat162 scale) {
  // A product shifts a pair of nibbles by 12 for the sign and by 6 for the rest, where they meet no
  // other bits; of the lower two pairs, whose nibbles begin at bit 0 or 4.
  constexpr int kFrom = kPair % 2 * 4;
  const std::uint32_t four = (kPair < 2 ? nibbles : nibbles >> 8) & 0x000f000fu << kFrom;
  const std::uint32_t bits = four * (0x1040u >> kFrom) & 0x81c081c0u;
  const __nv_bfloat162 pair = __hmul2(pair_of_bits(bits), scale);
  std::uint32_t result;
  memcpy(&result, &pair, sizeof result);
  return result;
}

// Where tokens have element k of K, if a lane of a quad has a word of eight weights and their
// fragments take pairs of it in turn: e2m1_pair<i> of word w makes columns 2 · w (+1) of chunk i.
__host__ __device__ constexpr int interleaved(int k) {
  return k / kMxGroup * kMxGroup + k % 4 * 8 + k % kMxGroup / 8 * 2 + k % 8 / 4;
}

}  // namespace quire::cuda
