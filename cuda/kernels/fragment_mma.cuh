#pragma once
// Products with packed integers (WeightFormat::fragments), of one matrix or of the experts that
// tokens were sent to. Weights are the rows of a tile's product and tokens its columns. A block has
// 256 rows of a matrix; their tiles and its tokens pass through a ring of stages, 128 columns of K
// at a time, and codes become numbers in registers. The sum of an element is made in one order,
// whatever else is in the batch. Devices whose blocks have 99 KiB (Ada) have two stages where three
// do not fit.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/expert_rows.cuh"
#include "cuda/device/fragments.cuh"

namespace quire::cuda {
namespace {

constexpr int kMmaWarps = 8, kMmaThreads = kMmaWarps * 32;
constexpr int kHalf = kMmaWarps * kFragmentRows,
              kRows = 2 * kHalf;  // gated: the gate's rows, then their partners
constexpr int kStages = 3, kFewestStages = 2;

template <class T>
struct FragmentProduct {
  ExpertBlock block;
  ExpertOutput output;
  const T* x;
  const unsigned char* weight;
  std::int64_t x_stride, expert_bytes;
  int depth, tiles;  // K; tiles of a row of them
  int row_tiles;     // of a matrix
  int stages;        // of the ring: kFewestStages or kStages
  std::uint32_t base;
};

template <class T, class F, int kTokens>
struct alignas(16) FragmentStage {
  unsigned char weight[kRows / kFragmentRows][F::kTileBytes];
  T x[kSlicesOfTile][kTokens][kFragmentSlice];
};

// Where the stage's row tile `i` comes from, in the matrix; the last one where there is none.
template <class T>
__device__ __forceinline__ int row_tile(const FragmentProduct<T>& p, int column0, int i) {
  constexpr int kOfHalf = kHalf / kFragmentRows;
  const int half = i / kOfHalf;
  const int from = p.output.gated ? column0 / kFragmentRows + i % kOfHalf +
                                        half * (p.output.columns / kFragmentRows)
                                  : column0 / kFragmentRows + i;
  return min(from, p.row_tiles - 1);
}

template <class T, class F, int kTokens>
__device__ __forceinline__ void copy_stage(FragmentStage<T, F, kTokens>& stage,
                                           const FragmentProduct<T>& p, const unsigned char* weight,
                                           const int* x_rows, int column0, int step) {
  constexpr int kWeightChunks = F::kTileBytes / 16, kXChunks = kFragmentSlice * 2 / 16;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = warp; i < kRows / kFragmentRows; i += kMmaWarps) {
    const unsigned char* const from =
        weight + (std::int64_t{row_tile(p, column0, i)} * p.tiles + step) * F::kTileBytes;
    for (int c = lane; c < kWeightChunks; c += 32)
      async_copy<16>(stage.weight[i] + c * 16, from + c * 16);
  }
  for (int i = static_cast<int>(threadIdx.x); i < kSlicesOfTile * kTokens * kXChunks;
       i += kMmaThreads) {
    const int chunk = i % kXChunks, slice = i / kXChunks % kSlicesOfTile;
    const int token = i / (kXChunks * kSlicesOfTile), row = x_rows[token];
    const int column = step * kFragmentColumns + slice * kFragmentSlice + chunk * 8;
    const bool in_range = row >= 0 && column < p.depth;
    async_copy<16>(&stage.x[slice][token][chunk * 8],
                   p.x + (in_range ? row * p.x_stride + column : 0), in_range ? 16 : 0);
  }
}

// By way of shared memory, so that a token's columns are written side by side.
template <class T, int kTokens>
__device__ void store_sums(const FragmentProduct<T>& p, const ExpertTile& range, int column0,
                           const FragmentC (&sums)[2][kTokens / 8], float (*tile)[kRows + 4]) {
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * kFragmentRows + lane / 4;
  __syncthreads();  // the stages that lay here have been used
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        tile[n * 8 + lane % 4 * 2 + i % 2][half * kHalf + row0 + i / 2 * 8] = sums[half][n].r[i];
      }
    }
  }
  __syncthreads();
  const ExpertOutput& output = p.output;
  const int columns = min(output.gated ? kHalf : kRows, output.columns - column0);
  for (int i = threadIdx.x; i < (range.end - range.begin) * columns; i += kMmaThreads) {
    const int token = i / columns, column = i % columns;
    output.store(range.expert, p.block.out_row(range.begin + token), column0 + column,
                 tile[token][column], output.gated ? tile[token][kHalf + column] : 0.f);
  }
}

// Grid (columns, tiles). The second bound decides what the compiler spills: nothing with these.
template <class T, class F, int kTokens>
__global__ void __launch_bounds__(kMmaThreads, kTokens == kFewTileTokens ? 1 : 0)
    fragment_mma_kernel(const __grid_constant__ FragmentProduct<T> p) {
  release_next_kernel();
  await_previous_kernel();
  using Stage = FragmentStage<T, F, kTokens>;
  static_assert(kTokens * (kRows + 4) * sizeof(float) <= kFewestStages * sizeof(Stage));
  DYN_SHARED(memory, unsigned char);
  SHARED(x_rows, int[kTokens]);
  Stage* const stages = reinterpret_cast<Stage*>(memory);
  const ExpertTile range = p.block.tile(static_cast<int>(blockIdx.y));
  if (range.begin >= range.end) return;
  const int column0 = static_cast<int>(blockIdx.x) * (p.output.gated ? kHalf : kRows);
  for (int i = threadIdx.x; i < kTokens; i += kMmaThreads)
    x_rows[i] = range.begin + i < range.end ? p.block.x_row(range.begin + i) : -1;
  __syncthreads();

  const unsigned char* const weight = p.weight + range.expert * p.expert_bytes;
  const auto copy_step = [&](int step, int place) {
    if (step < p.tiles) copy_stage(stages[place], p, weight, x_rows, column0, step);
    async_copy_commit();
  };
  for (int step = 0; step < p.stages - 1; ++step) copy_step(step, step);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  FragmentC sums[2][kTokens / 8] = {};
  for (int step = 0, place = 0, before = p.stages - 1; step < p.tiles; ++step) {
    async_copy_wait<kStages - 2>();
    if (p.stages < kStages) async_copy_wait<kFewestStages - 2>();
    __syncthreads();  // everybody's copies are there, and the stage before has been used
    copy_step(step + p.stages - 1, before);
    const Stage& stage = stages[place];
    before = place;
    place = place + 1 == p.stages ? 0 : place + 1;
    LaneTile<F> tile[2];
    load_tile<F>(tile[0], stage.weight[warp], lane);
    load_tile<F>(tile[1], stage.weight[kMmaWarps + warp], lane);
#pragma unroll
    for (int slice = 0; slice < kSlicesOfTile; ++slice) {
      std::uint32_t x[kTokens / 8][4];
#pragma unroll
      for (int n = 0; n < kTokens / 8; ++n)
        input_words<F>(x[n], stage.x[slice][n * 8 + lane / 4], lane % 4);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply_slice<T, F, kTokens / 8>(sums[half], tile[half].scale, tile[half].code, slice, x,
                                          p.base);
      }
    }
  }
  store_sums<T, kTokens>(p, range, column0, sums, reinterpret_cast<float(*)[kRows + 4]>(memory));
}

}  // namespace
}  // namespace quire::cuda
