#pragma once
// What passes through the ring of stages of expert_mma.cuh: 128 rows of an expert's matrix and the
// tokens of a tile, 64 columns of K at a time.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/expert_rows.cuh"
#include "cuda/kernels/expert_formats.cuh"

namespace quire::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kHalf = kWarps * 16,
              kRows = 2 * kHalf;   // gated: the gate's rows, then their partners
constexpr int kStep = 2 * kSlice;  // of K: a stage
constexpr int kStages = 4, kFewestStages = 3;

template <class Format>
struct MmaProduct {
  ExpertBlock block;
  ExpertOutput output;
  const typename Format::Element* x;
  const unsigned char* weight;
  const typename Format::Scale* scales;
  std::int64_t x_stride, row_bytes, expert_bytes;
  std::int64_t scale_stride, expert_scales;  // of a row of scales, of an expert's
  int depth;
  int scale_rows, scale_columns;  // rows of the matrix under a row of scales; scales in it
  int stages;                     // of the ring: kStages, or kFewestStages where kShortens
};

// A lane has 16 elements in a row of a row of weights that it folds scales into, and x as it needs
// it; others have 8 of either slice.
template <class Format, int kTokens>
struct alignas(16) ProductStage {
  static constexpr bool kWhole = Format::kFoldDepth != 0;
  static constexpr int kParts = kWhole ? 1 : 2, kOfPart = kStep / kParts;
  unsigned char weight[kParts][kRows][2 / kParts * Format::kSliceBytes];
  typename Format::Element x[kParts][kTokens][kOfPart];

  // Eight elements of x: whole rows have them in an order that lets eight lanes read two tokens
  // from all banks.
  __device__ __forceinline__ static int x_place(int token, int eight) {
    return (kWhole ? eight ^ token % 2 : eight % (kOfPart / 8)) * 8;
  }
};

// Scales that are folded into weights lie in fours of a row's groups, fours of all rows in turn.
__host__ __device__ constexpr int folded_place(int group, int row) {
  return group / 4 * 4 * kRows + row * 4 + group % 4;
}

// A block's place, and the weight rows it has.
template <class Format, int kTokens>
struct ProductTile {
  const MmaProduct<Format>& p;
  ExpertTile tile;
  int column0;
  // [scale_columns][kRows], shared; of scales that are folded see folded_place().
  const typename Format::Scale* scales;

  // Row of the expert's matrix; of one that no column has, the last of its half.
  __device__ __forceinline__ int weight_row(int row) const {
    const int half = row / kHalf, r = row % kHalf;
    const int column = min(column0 + (p.output.gated ? r : row), p.output.columns - 1);
    return p.output.gated ? half * p.output.columns + column : column;
  }
};

// A thread's copies: the same 16 bytes of every row that it has, and of every step. Rows behind the
// last are copies of it, which nobody stores.
template <class Format, int kTokens>
class ProductCopies {
  using Stage = ProductStage<Format, kTokens>;

 public:
  __device__ __forceinline__ explicit ProductCopies(const ProductTile<Format, kTokens>& t)
      : weight_left_(t.p.depth - lane() * (kSlice / kChunks)) {
    const MmaProduct<Format>& p = t.p;
    const std::uintptr_t weight =
        reinterpret_cast<std::uintptr_t>(p.weight) + t.tile.expert * p.expert_bytes + lane() * 16;
#pragma unroll
    for (int i = 0; i < kPasses; ++i)
      weight_[i] = weight + t.weight_row(i * kPassRows + row()) * p.row_bytes;
#pragma unroll
    for (int i = 0; i < kTokenPasses; ++i) {
      const int at = t.tile.begin + x_row(i);
      const bool has_token = at < t.tile.end;
      const std::int64_t from = has_token ? p.block.x_row(at) : 0;
      x_left_[i] = has_token ? p.depth - x_lane() * 8 : 0;
      x_[i] = reinterpret_cast<std::uintptr_t>(p.x + from * p.x_stride + x_lane() * 8);
    }
  }

  // Of the step so many steps ahead. Elements out of range are filled with zeros.
  __device__ __forceinline__ void copy(Stage& stage, int ahead) const {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      async_copy<16>(
          &stage.weight[lane() / kPartChunks][i * kPassRows + row()][lane() % kPartChunks * 16],
          reinterpret_cast<const void*>(weight_[i] + ahead * (2 * Format::kSliceBytes)),
          ahead * kStep < weight_left_ ? 16 : 0);
    }
#pragma unroll
    for (int i = 0; i < kTokenPasses; ++i) {
      async_copy<16>(&stage.x[x_lane() / (kXLanes / Stage::kParts)][x_row(i)]
                             [Stage::x_place(x_row(i), x_lane())],
                     reinterpret_cast<const void*>(x_[i] + ahead * (kStep * kXBytes)),
                     ahead * kStep < x_left_[i] ? 16 : 0);
    }
  }
  __device__ __forceinline__ void advance(int steps) {
    weight_left_ -= steps * kStep;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) weight_[i] += steps * (2 * Format::kSliceBytes);
#pragma unroll
    for (int i = 0; i < kTokenPasses; ++i) {
      x_left_[i] -= steps * kStep;
      x_[i] += steps * (kStep * kXBytes);
    }
  }

 private:
  static constexpr int kChunks = Format::kSliceBytes / 16;  // of a slice
  static constexpr int kLanes = 2 * kChunks, kPartChunks = kLanes / Stage::kParts;
  static constexpr int kPassRows = kThreads / kLanes, kPasses = kRows / kPassRows;
  static constexpr int kXBytes = sizeof(typename Format::Element), kXLanes = kStep / 8;
  static constexpr int kTokenRows = kThreads / kXLanes, kTokenPasses = kTokens / kTokenRows;
  static_assert(kHalf % kPassRows == 0 && kTokens % kTokenRows == 0);

  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ __forceinline__ static int x_row(int pass) {
    return static_cast<int>(threadIdx.x) / kXLanes + pass * kTokenRows;
  }
  __device__ __forceinline__ static int x_lane() { return static_cast<int>(threadIdx.x) % kXLanes; }

  int weight_left_, x_left_[kTokenPasses];  // elements of K from the thread's first on; 0: no token
  std::uintptr_t weight_[kPasses], x_[kTokenPasses];
};

}  // namespace
}  // namespace quire::cuda
