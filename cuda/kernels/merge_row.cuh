#pragma once
// The partial results of a row's splits, merged.

#include "cuda/device/softmax_state.cuh"
#include "cuda/device/vec.cuh"

namespace quire::cuda {

constexpr int kMergeThreads = 128;

// out(token, head) of `splits` results at `from`, by a block. Sinks may be null.
template <class T>
__device__ __forceinline__ void merge_row(const View<T, 3>& out, int token, int head,
                                          const float* from, const float* sinks, int splits) {
  const int dim = static_cast<int>(out.extent[2]);
  SoftmaxState total;
  if (sinks != nullptr) total = {sinks[head], 1.f};
  for (int s = 0; s < splits; ++s) {
    const SoftmaxState part{from[s * (dim + 2) + dim], from[s * (dim + 2) + dim + 1]};
    total.merge(part);
  }
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float value = 0.f;
    for (int s = 0; s < splits; ++s) {
      const float* part = from + s * (dim + 2);
      if (part[dim + 1] > 0.f) value += part[d] * SoftmaxState{part[dim], 0.f}.factor(total.max);
    }
    out(token, head, d) = T(total.sum > 0.f ? value / total.sum : 0.f);
  }
}

}  // namespace quire::cuda
