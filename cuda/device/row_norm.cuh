#pragma once
// RMSNorm of rows, in one order wherever it is taken, so that its bits do not depend on the kernel:
// a row's squares are added by 32 or 256 lanes, eight neighbouring elements at a time, then over
// warps, then warp by warp.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/block_sum.cuh"
#include "cuda/device/wide.cuh"

namespace quire::cuda {

constexpr int kNormBits = 3, kNormWarps = 1 << kNormBits;
// Rows of at most this width are one warp's.
constexpr int kNarrowNorm = 32 * kWideWidth * 2;

__device__ __forceinline__ void add_squares(float& sum, const Wide<float>& row) {
  for (int k = 0; k < kWideWidth; ++k) sum += row.at[k] * row.at[k];
}

__device__ __forceinline__ float norm_scale(float squares, int width, float eps) {
  return rsqrtf(squares / static_cast<float>(width) + eps);
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
  float eps = 0.f, weight_offset = 0.f;
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

// Behind fetch_norm_weight(): rows of at most kMostRows in shared memory, for all threads to read.
template <int kThreads, int kMostRows, class T>
__device__ __forceinline__ void norm_rows(T* normed, const BlockNorm<T>& norm, int rows,
                                          int width) {
  static_assert(kMostRows <= 32);
  SHARED(squares, float[kMostRows][kNormWarps]);
  SHARED(scales, float[kThreads / 32][kMostRows]);  // each warp's own
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // Of kNormWarps some have no elements of 1,024; adding their zeros changes nothing.
  const int bits = width <= kNarrowNorm ? 0 : width <= 1024 ? 2 : kNormBits, warps = 1 << bits;
  const int pitch = normed_pitch(width);
  for (int unit = warp; unit < rows << bits; unit += kThreads / 32) {
    const int row = unit >> bits, part = unit & (warps - 1);
    const float* const x = norm.x + row * norm.x_stride;
    float sum = 0.f;
#pragma unroll 2
    for (int i = (part * 32 + lane) * kWideWidth; i < width; i += warps * 32 * kWideWidth)
      add_squares(sum, load_wide(x + i));
    sum = warp_reduce(sum, Add{});
    if (lane == 0) squares[row][part] = sum;
  }
  __syncthreads();
  if (lane < rows) {
    float sum = 0.f;
    for (int w = 0; w < warps; ++w) sum += squares[lane][w];
    scales[warp][lane] = norm_scale(sum, width, norm.eps);
  }
  async_copy_wait<0>();  // of what this thread has copied and now reads
  __syncwarp();
  T* const last = normed + (rows - 1) * pitch;
  for (int i = threadIdx.x * kWideWidth; i < width; i += kThreads * kWideWidth) {
    const Wide<float> weight = load_wide_floats(last + i);
    for (int row = 0; row < rows; ++row)
      store_normed(normed + row * pitch + i, load_wide(norm.x + row * norm.x_stride + i),
                   scales[warp][row], weight, norm.weight_offset);
  }
  __syncthreads();
}

}  // namespace quire::cuda
