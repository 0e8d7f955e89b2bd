#pragma once
// Products of at most 32 rows with packed integers (WeightFormat::fragments): bound by reading the
// weights, which go from memory to registers once and are numbers there: operands of tensor cores,
// whose rows are the weight's and whose columns x's. The warps of a block share
// sixteen rows and take tiles of their columns in turn, with some on the way. The first ones are
// fetched before the kernel that computes x has ended. At most eight rows may be norms of others,
// which every block takes for itself, and the product may be added to what is there.

#include "cuda/device/any_view.cuh"
#include "cuda/device/dependent.cuh"
#include "cuda/device/fragments.cuh"
#include "cuda/device/row_norm.cuh"

namespace quire::cuda {
namespace {

constexpr int kFewWarps = 8, kFewThreads = kFewWarps * 32;

// Tiles of a warp on the way, as registers allow; kTiles of eight tokens.
template <class F, int kTiles>
constexpr int kDepth = kTiles == 1 ? (sizeof(LaneTile<F>) <= 48 ? 4 : 2)
                                   : (sizeof(LaneTile<F>) <= 64 ? 2 : 1);

template <class T>
struct FewArgs {
  AnyView out, bias;  // [1, tokens, N], [1, 1, N]
  const T* x;         // unless there is a norm
  BlockNorm<T> norm;  // without rows: none
  const unsigned char* weight;
  std::int64_t x_stride;
  int tokens, rows, columns;  // of the weight: N, K
  std::uint32_t base;
  bool adds;
};

template <class T, class F, int kTiles>
__global__ void __launch_bounds__(kFewThreads, kTiles == 1 ? 2 : 1)
    few_fragments_kernel(const __grid_constant__ FewArgs<T> a) {
  constexpr int kAhead = kDepth<F, kTiles>, kTokens = kTiles * 8;
  SHARED(sums, float[kFewWarps][kTokens][kFragmentRows]);
  DYN_SHARED(normed, T);  // [tokens, normed_pitch(columns)]
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 = static_cast<int>(blockIdx.x) * kFragmentRows;
  const int tiles = (a.columns - 1) / kFragmentColumns + 1;
  const unsigned char* const first = a.weight + std::int64_t{blockIdx.x} * tiles * F::kTileBytes;
  LaneTile<F> ahead[kAhead] = {};
  const auto fetch = [&](LaneTile<F>& to, int tile) {
    if (tile < tiles) load_tile<F>(to, first + std::int64_t{tile} * F::kTileBytes, lane);
  };
#pragma unroll
  for (int s = 0; s < kAhead; ++s) fetch(ahead[s], warp + s * kFewWarps);
  const bool norms = kTiles == 1 && a.norm.x != nullptr;
  if (norms) fetch_norm_weight<kFewThreads>(normed, a.norm, a.tokens, a.columns);
  release_next_kernel();
  await_previous_kernel();
  if (norms) norm_rows<kFewThreads, kTokens>(normed, a.norm, a.tokens, a.columns);
  const T* const x = norms ? normed : a.x;
  const std::int64_t x_stride = norms ? normed_pitch(a.columns) : a.x_stride;

  // Tokens that are not there have the last one's columns: their sums go nowhere.
  const T* x_rows[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) x_rows[n] = x + min(n * 8 + lane / 4, a.tokens - 1) * x_stride;
  FragmentC sum[kTiles] = {};
  // kWhole: none of the tile's columns lies behind the last.
  const auto add_tile = [&]<bool kWhole>(std::bool_constant<kWhole>, const LaneTile<F>& lane_tile,
                                         int column0) {
#pragma unroll
    for (int slice = 0; slice < kSlicesOfTile; ++slice) {
      const int column = column0 + slice * kFragmentSlice;
      std::uint32_t words[kTiles][4] = {};
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (kWhole || column < a.columns) input_words<F>(words[n], x_rows[n] + column, lane % 4);
      }
      multiply_slice<T, F, kTiles>(sum, lane_tile.scale, lane_tile.code, slice, words, a.base);
    }
  };
  for (int turn = warp; turn < tiles; turn += kAhead * kFewWarps) {
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      const int tile = turn + s * kFewWarps;
      if (tile >= tiles) break;
      const int column0 = tile * kFragmentColumns;
      if (column0 + kFragmentColumns <= a.columns) {
        add_tile(std::true_type{}, ahead[s], column0);
      } else {
        add_tile(std::false_type{}, ahead[s], column0);
      }
      fetch(ahead[s], tile + kAhead * kFewWarps);
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[warp][n * 8 + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sum[n].r[i];
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < a.tokens * kFragmentRows; at += kFewThreads) {
    const int token = at / kFragmentRows, r = at % kFragmentRows, row = row0 + r;
    if (row >= a.rows) continue;
    float total = a.bias.data != nullptr ? a.bias.load(0, 0, row) : 0.f;
#pragma unroll
    for (int w = 0; w < kFewWarps; ++w) total += sums[w][token][r];
    a.out.store(0, token, row, a.adds ? a.out.load(0, token, row) + total : total);
  }
}

}  // namespace
}  // namespace quire::cuda
