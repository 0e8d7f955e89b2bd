#pragma once
// Products on tensor cores whose operands keep more bits than bf16 or f16 has: a float32 is the sum
// of two of them, which leaves 16 bits of bf16's and 22 of f16's.

#include "cuda/device/typed_mma.cuh"

namespace quire::cuda {

// high + low.
struct SplitA {
  FragmentA high, low;
};
struct SplitB {
  FragmentB high, low;
};

template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t bits) {
  if constexpr (std::is_same_v<T, __half>) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof pair);
    return __half22float2(pair);
  } else {
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
  }
}

// What f16 does not reach becomes its largest number, as keys of almost no length can be normed by
// up to 1000; what is no number stays none.
template <class T>
__device__ __forceinline__ float within(float a) {
  constexpr float kLargest = 65504.f;
  if constexpr (std::is_same_v<T, __half>) return fabsf(a) > kLargest ? copysignf(kLargest, a) : a;
  return a;
}

template <class T>
__device__ __forceinline__ void split(std::uint32_t& high, std::uint32_t& low, float a, float b) {
  a = within<T>(a), b = within<T>(b);
  high = pack<T>(a, b);
  const float2 rounded = unpack<T>(high);
  low = pack<T>(a - rounded.x, b - rounded.y);
}

// Sums of a product as the left operand of the next: two tiles of 8 columns are 16 of its depth.
template <class T>
__device__ __forceinline__ SplitA split_sums(const FragmentC& first, const FragmentC& second) {
  SplitA a;
  split<T>(a.high.r[0], a.low.r[0], first.r[0], first.r[1]);
  split<T>(a.high.r[1], a.low.r[1], first.r[2], first.r[3]);
  split<T>(a.high.r[2], a.low.r[2], second.r[0], second.r[1]);
  split<T>(a.high.r[3], a.low.r[3], second.r[2], second.r[3]);
  return a;
}

// Tiles side by side: a sum waits for its own product before, so that those of others go between.
// With operands that T holds exactly:
template <class T, int kTiles>
__device__ __forceinline__ void mma_tiles(FragmentC* d, const SplitA& a,
                                          const FragmentB (&b)[kTiles]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) mma<T>(d[i], a.high, b[i]);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) mma<T>(d[i], a.low, b[i]);
}
template <class T, int kTiles>
__device__ __forceinline__ void mma_tiles(FragmentC* d, const FragmentA& a,
                                          const SplitB (&b)[kTiles]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) mma<T>(d[i], a, b[i].high);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) mma<T>(d[i], a, b[i].low);
}
// Without what both rounded off, which is as small as what neither has:
template <class T, int kTiles>
__device__ __forceinline__ void mma_tiles(FragmentC* d, const SplitA& a,
                                          const SplitB (&b)[kTiles]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) mma<T>(d[i], a.high, b[i].high);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) mma<T>(d[i], a.high, b[i].low);
#pragma unroll
  for (int i = 0; i < kTiles; ++i) mma<T>(d[i], a.low, b[i].high);
}

// Rows [row, row + 16) and columns [column, column + 16) of a matrix in shared memory as a left
// operand.
template <class T, int kStride>
__device__ __forceinline__ FragmentA load_left(const T (*matrix)[kStride], int row, int column) {
  const int lane = threadIdx.x % 32;
  FragmentA a;
  load_matrices(a.r, &matrix[row + lane % 16][column + lane / 16 * 8]);
  return a;
}
// The same 16 × 16 as right operands, two tiles of 8 columns. By rows: they are its depth.
template <class T, int kStride>
__device__ __forceinline__ void load_by_rows(FragmentB* b, const T (*matrix)[kStride], int row,
                                             int column) {
  const int lane = threadIdx.x % 32;
  std::uint32_t r[4];
  load_matrices_transposed(r, &matrix[row + lane % 16][column + lane / 16 * 8]);
  b[0] = {{r[0], r[1]}};
  b[1] = {{r[2], r[3]}};
}
// Transposed: its columns are the depth.
template <class T, int kStride>
__device__ __forceinline__ void load_by_columns(FragmentB* b, const T (*matrix)[kStride], int row,
                                                int column) {
  const int lane = threadIdx.x % 32;
  std::uint32_t r[4];
  load_matrices(r, &matrix[row + lane / 16 * 8 + lane % 8][column + lane / 8 % 2 * 8]);
  b[0] = {{r[0], r[1]}};
  b[1] = {{r[2], r[3]}};
}

}  // namespace quire::cuda
