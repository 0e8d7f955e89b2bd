#pragma once
// RMSNorm of rows, in one order wherever it is taken, so that its bits do not depend on the kernel:
// a row's squares are added by 256 lanes, eight neighbouring elements at a time, then over warps,
// then warp by warp. Lanes without elements add zeros, which change nothing.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/block_sum.cuh"
#include "cuda/device/wide.cuh"

namespace quire::cuda {

constexpr int kNormLanes = 256, kNormWarps = kNormLanes / 32;

__device__ __forceinline__ void add_squares(float& sum, const Wide<float>& row) {
  for (int k = 0; k < kWideWidth; ++k) sum = fmaf(row.at[k], row.at[k], sum);
}

__device__ __forceinline__ float norm_scale(float squares, float inverse_width, float eps) {
  return rsqrtf(fmaf(squares, inverse_width, eps));
}

template <class Out>
__device__ __forceinline__ void store_normed(Out* to, const Wide<float>& row, float scale,
                                             const Wide<float>& weight, float weight_offset) {
  Wide<Out> o;
  for (int k = 0; k < kWideWidth; ++k) {
    o.at[k] = Out(row.at[k] * scale * (weight.at[k] + weight_offset));
  }
  store_wide(to, o);
}

// What a block norms for itself.
template <class T>
struct BlockNorm {
  const float* x = nullptr;
  const T* weight = nullptr;
  std::int64_t x_stride = 0;
  float inverse_width = 0.f, eps = 0.f, weight_offset = 0.f;
};

// Elements from row to row in shared memory: rows begin at banks of their own.
inline __host__ __device__ int normed_pitch(int width) { return width + 32; }

// The weight, to where norm_rows() puts the last row.
template <int kThreads, class T>
__device__ __forceinline__ void fetch_norm_weight(T* normed, const BlockNorm<T>& norm, int rows,
                                                  int width) {
  T* const to = normed + (rows - 1) * normed_pitch(width);
  for (int i = threadIdx.x * kWideWidth; i < width; i += kThreads * kWideWidth)
    async_copy<16>(to + i, norm.weight + i);
  async_copy_commit();
}

// One row. A thread norms the runs whose squares it adds; kKept: it has one for each of the norm's
// lanes that it stands for, which stays in registers.
template <int kThreads, bool kKept, class T>
__device__ __forceinline__ void norm_row(T* normed, const BlockNorm<T>& norm, int width) {
  constexpr int kWarps = kThreads / 32, kStep = kThreads * kWideWidth,
                kRuns = kNormLanes / kThreads;
  static_assert(kRuns * kThreads == kNormLanes && kNormWarps == kWideWidth);
  SHARED(squares, Wide<float>);  // of the norm's warps
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) * kWideWidth, left = width - first;
  const float* const x = norm.x + first;
  T* const to = normed + first;
  Wide<float> runs[kRuns];
  const auto for_runs = [&](int i, auto&& f) {
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      if (i + r * kStep < left) f(r, i + r * kStep);
    }
  };
  const auto read = [&](int r, int at) { runs[r] = load_wide(x + at); };
  float sums[kRuns] = {};
#pragma unroll 1
  for (int i = 0; i < left; i += kRuns * kStep) {
    for_runs(i, read);
    for_runs(i, [&](int r, int) { add_squares(sums[r], runs[r]); });
    if (kKept) break;
  }
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    if (r == 0 || r * kStep < width) sums[r] = warp_reduce(sums[r], Add{});
    if (lane == 0) squares.at[r * kWarps + warp] = sums[r];
  }
  __syncthreads();
  float sum = squares.at[0];
#pragma unroll
  for (int w = 1; w < kNormWarps; ++w) sum += squares.at[w];
  const float scale = norm_scale(sum, norm.inverse_width, norm.eps);
  async_copy_wait<0>();  // of what this thread has copied and now reads
#pragma unroll 1
  for (int i = 0; i < left; i += kRuns * kStep) {
    if (!kKept) for_runs(i, read);
    for_runs(i, [&](int r, int at) {
      store_normed(to + at, runs[r], scale, load_wide_floats(to + at), norm.weight_offset);
    });
    if (kKept) break;
  }
  __syncthreads();
}

// Several: a warp adds all squares of a row.
template <int kThreads, int kMostRows, class T>
__device__ __forceinline__ void norm_several(T* normed, const BlockNorm<T>& norm, int rows,
                                             int width) {
  constexpr int kWarpWidth = 32 * kWideWidth, kAtOnce = kNormWarps / 2;
  SHARED(scales, float[kMostRows]);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = warp; row < rows; row += kThreads / 32) {
    const float* const x = norm.x + row * norm.x_stride;
    float total = 0.f;
#pragma unroll 1
    for (int part = 0; part < kNormWarps && part * kWarpWidth < width; part += kAtOnce) {
      Wide<float> runs[kAtOnce];
      float sums[kAtOnce] = {};
#pragma unroll 1
      for (int i = part * kWarpWidth + lane * kWideWidth; i < width; i += kNormWarps * kWarpWidth) {
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r)
          if (i + r * kWarpWidth < width) runs[r] = load_wide(x + i + r * kWarpWidth);
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r)
          if (i + r * kWarpWidth < width) add_squares(sums[r], runs[r]);
      }
#pragma unroll
      for (const float sum : sums) total += warp_reduce(sum, Add{});
    }
    if (lane == 0) scales[row] = norm_scale(total, norm.inverse_width, norm.eps);
  }
  __syncthreads();
  async_copy_wait<0>();  // of what this thread has copied and now reads
  const int pitch = normed_pitch(width);
  const T* const weights = normed + (rows - 1) * pitch;
#pragma unroll 1
  for (int i = threadIdx.x * kWideWidth; i < width; i += kThreads * kWideWidth) {
    const Wide<float> weight = load_wide_floats(weights + i);
    const float* x = norm.x + i;
    T* to = normed + i;
#pragma unroll 1
    for (int row = 0; row < rows; ++row, x += norm.x_stride, to += pitch)
      store_normed(to, load_wide(x), scales[row], weight, norm.weight_offset);
  }
  __syncthreads();
}

// Behind fetch_norm_weight(): rows of at most kMostRows in shared memory, for all threads to read.
template <int kThreads, int kMostRows, class T>
__device__ __forceinline__ void norm_rows(T* normed, const BlockNorm<T>& norm, int rows,
                                          int width) {
  if (rows > 1) return norm_several<kThreads, kMostRows>(normed, norm, rows, width);
  if (width <= kNormLanes * kWideWidth) return norm_row<kThreads, true>(normed, norm, width);
  norm_row<kThreads, false>(normed, norm, width);
}

}  // namespace quire::cuda
