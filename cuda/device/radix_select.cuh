#pragma once
// Selection in a row of floats by one block, without sorting: eight bits of the ordered key at a
// time, from the top. Sums are integers, so that the answer does not depend on the order in which
// threads add.

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

struct Selection {
  std::uint32_t key;         // the largest key for which weight(keys ≥ key) ≥ target
  unsigned long long above;  // weight of keys > key
};

// weight_of(i, key) ≥ 0 is the weight of element i; target ≥ 1 must not exceed the total. All
// threads call it and get the same answer. Memory bound: four passes over the row, from L2.
template <int kThreads, class KeyOf, class WeightOf>
__device__ Selection radix_select(int size, unsigned long long target, KeyOf key_of,
                                  WeightOf weight_of) {
  static_assert(kThreads >= 256);
  SHARED(bins, unsigned long long[256]);
  SHARED(found, unsigned long long[2]);
  std::uint32_t prefix = 0;
  unsigned long long above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    const std::uint32_t fixed = shift == 24 ? 0u : 0xffffffffu << (shift + 8);  // bits known by now
    if (threadIdx.x < 256) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += kThreads) {
      const std::uint32_t key = key_of(i);
      if ((key & fixed) == prefix) atomicAdd(&bins[key >> shift & 255u], weight_of(i, key));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      while (digit > 0 && above + bins[digit] < target) above += bins[digit--];
      found[0] = static_cast<unsigned long long>(digit);
      found[1] = above;
    }
    __syncthreads();
    prefix |= static_cast<std::uint32_t>(found[0]) << shift;
    above = found[1];
  }
  return {prefix, above};
}

}  // namespace quire::cuda
