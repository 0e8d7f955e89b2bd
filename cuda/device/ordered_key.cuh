#pragma once
// Floats as integers of the same order, and selection among them by one block.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

// Keeps the order of floats: a < b ⇔ ordered_key(a) < ordered_key(b).
__device__ __forceinline__ std::uint32_t ordered_key(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float key_value(std::uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// The sum over the block's threads; all of them get it. Integers: in whatever order, the same.
template <int kThreads, class T>
__device__ __forceinline__ T block_total(T value) {
  static_assert(std::is_integral_v<T> && kThreads % 32 == 0);
  SHARED(parts, T[kThreads / 32]);
  for (int lanes = 16; lanes != 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  T total = 0;
  for (int i = 0; i < kThreads / 32; ++i) total += parts[i];
  return total;
}

// A value that the k largest of what visit(take) hands to take(value) reach, and as few others as
// equal the k-th; k ≥ 1, −inf if there are fewer. Bit by bit from the top until there are k, so at
// most 32 visits: of a list in shared memory, some microseconds. All threads call it.
template <int kThreads, class Visit>
__device__ float reached_by_largest(int k, const Visit& visit) {
  std::uint32_t key = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    int mine = 0;
    visit([&](float value) { mine += ordered_key(value) >= (key | bit) ? 1 : 0; });
    const int count = block_total<kThreads>(mine);
    if (count >= k) key |= bit;
    if (count == k) break;
  }
  return key == 0 ? -INFINITY : key_value(key);
}

}  // namespace quire::cuda
