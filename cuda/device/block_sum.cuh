#pragma once
// Sums and maxima over a warp and over a block; every thread gets the result.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
  static constexpr float kNeutral = 0.f;
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  static constexpr float kNeutral = -3.402823466e38f;
};

template <class Op>
__device__ __forceinline__ float warp_reduce(float value, Op op) {
  for (int lanes = 16; lanes != 0; lanes /= 2)
    value = op(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  return value;
}

// All kThreads threads call it. Each kThreads and Op have parts of their own: between two calls with
// the same ones the kernel has a barrier, or something else that waits for the whole block.
template <int kThreads, class Op>
__device__ __forceinline__ float block_reduce(float value, Op op) {
  static_assert(kThreads % 32 == 0);
  SHARED(parts, float[kThreads / 32]);
  value = warp_reduce(value, op);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float result = Op::kNeutral;
  for (int i = 0; i < kThreads / 32; ++i) result = op(result, parts[i]);
  return result;
}

}  // namespace quire::cuda
