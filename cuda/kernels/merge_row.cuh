#pragma once
// The partial results of a row's parts, merged.

#include "cuda/device/softmax_state.cuh"
#include "cuda/device/vec.cuh"

namespace quire::cuda {

constexpr int kMergeThreads = 128;
constexpr int kMostMerged = 256;  // parts

// out(token, head) of `parts` results by a block; part_of(i) has values, then maximum and sum.
// Sinks may be null.
template <class T, class PartOf>
__device__ __forceinline__ void merge_row(const View<T, 3>& out, int token, int head,
                                          const float* sinks, int parts, const PartOf& part_of) {
  SHARED(factors, float[kMostMerged]);  // of each part's values; 0: it has none
  SHARED(sum, float);
  const int dim = static_cast<int>(out.extent[2]), thread = static_cast<int>(threadIdx.x);
  if (thread < 32) {
    SoftmaxState total;
    if (sinks != nullptr && thread == 0) total = {sinks[head], 1.f};
    for (int i = thread; i < parts; i += 32) {
      const float* state = part_of(i) + dim;
      total.merge({state[0], state[1]});
    }
    for (int lanes = 16; lanes != 0; lanes /= 2) {
      total.merge({__shfl_xor_sync(0xffffffffu, total.max, lanes),
                   __shfl_xor_sync(0xffffffffu, total.sum, lanes)});
    }
    if (thread == 0) sum = total.sum;
    for (int i = thread; i < parts; i += 32) {
      const float* state = part_of(i) + dim;
      factors[i] = state[1] > 0.f ? SoftmaxState{state[0], 0.f}.factor(total.max) : 0.f;
    }
  }
  __syncthreads();
  for (int d = thread; d < dim; d += kMergeThreads) {
    float value = 0.f;
#pragma unroll 4
    for (int i = 0; i < parts; ++i) {
      if (factors[i] > 0.f) value += part_of(i)[d] * factors[i];
    }
    out(token, head, d) = T(sum > 0.f ? value / sum : 0.f);
  }
}

}  // namespace quire::cuda
