#pragma once
// Results of the parts that a row's keys were cut into, and their sum: whoever merges reads all of
// them from memory, in the order of parts, so it changes no bits who that is.

#include "cuda/device/softmax_state.cuh"
#include "cuda/device/typed_mma.cuh"
#include "cuda/device/vec.cuh"

namespace quire::cuda {

// Floats of a row's result: values, maximum, sum, and so many that the next is aligned. With sum 0
// there are no values.
__host__ __device__ constexpr int part_floats(int dim) { return dim + 4; }

// A row's results lie `step` floats apart.
struct PartRun {
  const float* first;
  int step, count;
};

constexpr int kMergeLanes = 8;  // of a row

// A lane's values of a row: four of each chunk, relative to `total`, which all its lanes have.
template <int kDim>
struct MergedRow {
  static constexpr int kChunks = kDim / 4 / kMergeLanes;
  SoftmaxState total;
  float values[kChunks][4] = {};

  __device__ __forceinline__ static int dim_of(int chunk) {
    return (chunk * kMergeLanes + static_cast<int>(threadIdx.x) % kMergeLanes) * 4;
  }
  template <class T>
  __device__ __forceinline__ void store(T* out, float scale) const {
    const float whole = total.sum > 0.f ? __fdividef(scale, total.sum) : 0.f;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      *reinterpret_cast<uint2*>(out + dim_of(c)) = {
          pack<T>(values[c][0] * whole, values[c][1] * whole),
          pack<T>(values[c][2] * whole, values[c][3] * whole)};
    }
  }
};

// f(MergedRow) by the lanes of a row; four rows of a warp at a time, of which some may not be
// there. sink: null: none.
template <int kDim, int kRuns, class F>
__device__ __forceinline__ void merge_runs(const PartRun (&runs)[kRuns], bool there,
                                           const float* sink, const F& f) {
  const int at = static_cast<int>(threadIdx.x) % kMergeLanes;
  MergedRow<kDim> row;
  SoftmaxState& total = row.total;
  if (sink != nullptr && at == 0) total = {*sink, 1.f};
  const auto state_of = [](const float* part) {
    const float2 state = *reinterpret_cast<const float2*>(part + kDim);
    return SoftmaxState{state.x, state.y};
  };
#pragma unroll
  for (const PartRun& run : runs) {
    for (int i = at; there && i < run.count; i += kMergeLanes)
      total.merge(state_of(run.first + i * run.step));
  }
  for (int lanes = kMergeLanes / 2; lanes != 0; lanes /= 2) {
    total.merge({__shfl_xor_sync(0xffffffffu, total.max, lanes),
                 __shfl_xor_sync(0xffffffffu, total.sum, lanes)});
  }
  if (!there) return;
#pragma unroll
  for (const PartRun& run : runs) {
#pragma unroll 2
    for (int i = 0; i < run.count; ++i) {
      const float* part = run.first + i * run.step;
      const SoftmaxState state = state_of(part);
      if (state.sum == 0.f) continue;  // it has no values either
      const float factor = state.factor(total.max);
#pragma unroll
      for (int c = 0; c < MergedRow<kDim>::kChunks; ++c) {
        const Vec16<float> chunk = load_vec(part + row.dim_of(c));
#pragma unroll
        for (int d = 0; d < 4; ++d) row.values[c][d] += chunk.at[d] * factor;
      }
    }
  }
  f(row);
}

}  // namespace quire::cuda
