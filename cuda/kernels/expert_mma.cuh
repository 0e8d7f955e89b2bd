#pragma once
// Expert products on tensor cores: bf16 and f16, and MXFP4 or fp8 weights that are unpacked in
// registers.
// With few tokens an expert bound by reading its weights, with many by the tensor cores. Weights
// are the rows of a tile's product and tokens its columns, so that few tokens waste little. A block
// has 128 rows of an expert's matrix; they and its tokens pass through a ring of stages, 64 columns
// of K at a time. The sum of an element is made in one order, whatever else is in the batch. Where
// scales of long rows leave too little shared memory the ring is shorter, or tiles have few tokens.

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

template <class Format, int kTokens>
struct alignas(16) ProductStage {
  unsigned char weight[2][kRows][Format::kSliceBytes];
  typename Format::Element x[2][kTokens][kSlice];
};

// A block's place: the weight rows it has, and the rows of x.
template <class Format, int kTokens>
struct ProductTile {
  const MmaProduct<Format>& p;
  ExpertTile tile;
  int column0;
  const int* x_rows;                     // [kTokens], shared
  const typename Format::Scale* scales;  // [scale_columns][kRows], shared

  // Row of the expert's matrix, −1: none.
  __device__ __forceinline__ int weight_row(int row) const {
    const int half = row / kHalf, r = row % kHalf;
    const int column = column0 + (p.output.gated ? r : row);
    if (column >= p.output.columns) return -1;
    return p.output.gated ? half * p.output.columns + column : column;
  }
};

// A thread's copies: the same 16 bytes of every row that it has, and of every step; addresses are
// those of the first row and of the tokens.
template <class Format, int kTokens>
class ProductCopies {
 public:
  __device__ __forceinline__ explicit ProductCopies(const ProductTile<Format, kTokens>& t)
      : depth_(t.p.depth), row_bytes_(static_cast<std::uint32_t>(t.p.row_bytes)) {
    const MmaProduct<Format>& p = t.p;
    columns_left_ = p.output.columns - t.column0 - row();
    half_row_ = p.output.gated ? 0 : kHalf;
    half_bytes_ = (p.output.gated ? p.output.columns : kHalf) * p.row_bytes;
    weight_ = reinterpret_cast<std::uintptr_t>(p.weight) + t.tile.expert * p.expert_bytes +
              (t.column0 + row()) * p.row_bytes + lane() * 16;
#pragma unroll
    for (int i = 0; i < kTokenPasses; ++i) {
      const int from = t.x_rows[x_row(i)];
      x_[i] =
          from < 0 ? 0 : reinterpret_cast<std::uintptr_t>(p.x + from * p.x_stride + x_lane() * 8);
    }
  }

  // Elements out of range are filled with zeros.
  __device__ __forceinline__ void copy(ProductStage<Format, kTokens>& stage, int step) const {
    constexpr int kOfLane = kSlice / kChunks;  // elements
    const bool has_k = step * kStep + lane() * kOfLane < depth_;
    const std::uintptr_t weight = weight_ + step * (2 * Format::kSliceBytes);
    const int slice = lane() / kChunks, chunk = lane() % kChunks;
#pragma unroll
    for (int i = 0; i < kRows / kPassRows; ++i) {
      const int half = i * kPassRows / kHalf, r = i * kPassRows % kHalf;
      const bool in_range = has_k && r + half * half_row_ < columns_left_;
      const std::uintptr_t from = weight + r * row_bytes_ + (half != 0 ? half_bytes_ : 0);
      async_copy<16>(&stage.weight[slice][i * kPassRows + row()][chunk * 16],
                     reinterpret_cast<const void*>(from), in_range ? 16 : 0);
    }
    const bool has_x = step * kStep + x_lane() * 8 < depth_;
#pragma unroll
    for (int i = 0; i < kTokenPasses; ++i) {
      const bool in_range = has_x && x_[i] != 0;
      async_copy<16>(
          &stage.x[x_lane() / kXChunks][x_row(i)][x_lane() % kXChunks * 8],
          reinterpret_cast<const void*>(x_[i] + step * kStep * sizeof(typename Format::Element)),
          in_range ? 16 : 0);
    }
  }

 private:
  static constexpr int kChunks = Format::kSliceBytes / 16,
                       kXChunks = kSlice * 2 / 16;  // of a slice
  static constexpr int kLanes = 2 * kChunks, kPassRows = kThreads / kLanes;
  static constexpr int kTokenRows = kThreads / (2 * kXChunks);
  static constexpr int kTokenPasses = kTokens / kTokenRows;
  static_assert(kHalf % kPassRows == 0 && kTokens % kTokenRows == 0);

  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ __forceinline__ static int x_row(int pass) {
    return static_cast<int>(threadIdx.x) / (2 * kXChunks) + pass * kTokenRows;
  }
  __device__ __forceinline__ static int x_lane() {
    return static_cast<int>(threadIdx.x) % (2 * kXChunks);
  }
  int depth_, columns_left_, half_row_;
  std::uint32_t row_bytes_;
  std::int64_t half_bytes_;
  std::uintptr_t weight_, x_[kTokenPasses];  // 0: no token
};

// Sums of a warp: 16 rows of either half.
template <class Format, int kTokens>
struct WarpSums {
  FragmentC sum[2][kTokens / 8];

  __device__ __forceinline__ void add(const ProductTile<Format, kTokens>& tile,
                                      const ProductStage<Format, kTokens>& stage, int k0) {
    const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int slice = 0; slice < 2; ++slice) {
      if (k0 + slice * kSlice >= tile.p.depth) break;
      FragmentB x[kTokens / 8][2];
#pragma unroll
      for (int n = 0; n < kTokens / 8; ++n)
        Format::tokens(x[n], lane_slice(stage.x[slice][n * 8 + lane / 4]));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = half * kHalf + row0;
        FragmentA w[2];
        const unsigned char *low = stage.weight[slice][row], *high = stage.weight[slice][row + 8];
        if constexpr (Format::kFoldDepth != 0) {
          const auto* scales = tile.scales + (k0 + slice * kSlice) / Format::kFoldDepth * kRows;
          Format::weights(w, low, high, scales[row], scales[row + 8]);
        } else {
          Format::weights(w, low, high);
        }
        if constexpr (Format::kScaleDepth != 0) {
          const int k = k0 + slice * kSlice;
          const int group = tile.p.scale_columns == 1 ? 0 : k / Format::kScaleDepth;
          const typename Format::Scale* scales = tile.scales + group * kRows + row;
          add_scaled(sum[half], w, x, Format::scale(scales[0]), Format::scale(scales[8]));
        } else {
#pragma unroll
          for (int n = 0; n < kTokens / 8; ++n) {
            mma<typename Format::Element>(sum[half][n], w[0], x[n][0]);
            mma<typename Format::Element>(sum[half][n], w[1], x[n][1]);
          }
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static void add_scaled(FragmentC (&sums)[kTokens / 8],
                                                    const FragmentA (&w)[2],
                                                    const FragmentB (&x)[kTokens / 8][2], float low,
                                                    float high) {
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
      FragmentC part{};
      mma<typename Format::Element>(part, w[0], x[n][0]);
      mma<typename Format::Element>(part, w[1], x[n][1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n].r[i] = fmaf(part.r[i], i < 2 ? low : high, sums[n].r[i]);
    }
  }
};

// By way of shared memory, so that a token's columns are written side by side.
template <class Format, int kTokens>
__device__ void store_sums(const ProductTile<Format, kTokens>& t,
                           const WarpSums<Format, kTokens>& sums, float (*tile)[kRows + 4],
                           const float* row_scale) {
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 4;
  __syncthreads();  // the stages that lay here have been used
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = half * kHalf + row0 + i / 2 * 8;
        const float scale = Format::kFoldDepth != 0 ? row_scale[row] : 1.f;
        tile[n * 8 + lane % 4 * 2 + i % 2][row] = sums.sum[half][n].r[i] * scale;
      }
    }
  }
  __syncthreads();
  const ExpertOutput& output = t.p.output;
  const int columns = min(output.gated ? kHalf : kRows, output.columns - t.column0);
  for (int i = threadIdx.x; i < (t.tile.end - t.tile.begin) * columns; i += kThreads) {
    const int token = i / columns, column = i % columns;
    output.store(t.tile.expert, t.p.block.out_row(t.tile.begin + token), t.column0 + column,
                 tile[token][column], output.gated ? tile[token][kHalf + column] : 0.f);
  }
}

// A thread's row of scales: to shared memory, relative to the largest; returns by what the row's
// sums are to be multiplied.
template <class Format, int kTokens>
__device__ __forceinline__ float fold_scales(const ProductTile<Format, kTokens>& t,
                                             typename Format::Scale* scales) {
  static_assert(kThreads == kRows);
  const MmaProduct<Format>& p = t.p;
  const int row = t.weight_row(static_cast<int>(threadIdx.x)), groups = p.scale_columns;
  scales += threadIdx.x;
  int largest = 0;
  const auto* from = p.scales + t.tile.expert * p.expert_scales + row * p.scale_stride;
#pragma unroll 8
  for (int g = 0; g < groups; ++g) {
    const typename Format::Scale scale = row < 0 ? typename Format::Scale{} : from[g];
    scales[g * kRows] = scale;
    largest = max(largest, static_cast<int>(scale));
  }
#pragma unroll 8
  for (int g = 0; g < groups; ++g)
    scales[g * kRows] = relative_exponent(scales[g * kRows], largest);
  return relative_scale(largest);
}

// Where stages are known, so are addresses in them; with many tokens products are what counts.
template <class Format, int kTokens>
constexpr bool kShortens = kTokens != kFewTileTokens&& Format::kFoldDepth == 0;

// Grid (columns, tiles).
template <class Format, int kTokens>
__global__ void __launch_bounds__(kThreads, kShortens<Format, kTokens> ? 2 : 0)
    expert_mma_kernel(const __grid_constant__ MmaProduct<Format> p) {
  release_next_kernel();
  await_previous_kernel();
  using Stage = ProductStage<Format, kTokens>;
  const int ring = kShortens<Format, kTokens> ? p.stages : kStages;
  static_assert(kTokens * (kRows + 4) * sizeof(float) <=
                (kShortens<Format, kTokens> ? kFewestStages : kStages) * sizeof(Stage));
  DYN_SHARED(memory, unsigned char);
  SHARED(x_rows, int[kTokens]);
  Stage* stages = reinterpret_cast<Stage*>(memory);
  auto* scales = reinterpret_cast<typename Format::Scale*>(memory + ring * sizeof(Stage));
  const ExpertTile range = p.block.tile(static_cast<int>(blockIdx.y));
  if (range.begin >= range.end) return;
  const int columns = p.output.gated ? kHalf : kRows;
  const ProductTile<Format, kTokens> tile{p, range, static_cast<int>(blockIdx.x) * columns, x_rows,
                                          scales};
  for (int i = threadIdx.x; i < kTokens; i += kThreads)
    x_rows[i] = range.begin + i < range.end ? p.block.x_row(range.begin + i) : -1;
  SHARED(row_scale, float[Format::kFoldDepth != 0 ? kRows : 1]);
  if constexpr (Format::kFoldDepth != 0) {
    row_scale[threadIdx.x] = fold_scales(tile, scales);
  } else if constexpr (Format::kScaleDepth != 0) {
    const int groups = p.scale_columns;
    for (int i = threadIdx.x; i < kRows * groups; i += kThreads) {
      const int row = tile.weight_row(i / groups), group = i % groups;
      const std::int64_t from =
          range.expert * p.expert_scales + row / p.scale_rows * p.scale_stride;
      scales[group * kRows + i / groups] =
          row < 0 ? typename Format::Scale{} : p.scales[from + group];
    }
  }
  __syncthreads();

  const int steps = (p.depth + kStep - 1) / kStep;
  const ProductCopies<Format, kTokens> copies(tile);
  // Places in a ring that may be short are counted.
  constexpr bool kCounts = kShortens<Format, kTokens>;
  const auto copy_step = [&](int step, int counted) {
    if (step < steps) copies.copy(stages[kCounts ? counted : step % kStages], step);
    async_copy_commit();
  };
  for (int step = 0; step < ring - 1; ++step) copy_step(step, step);
  WarpSums<Format, kTokens> sums{};
  [[maybe_unused]] int place = 0, before = ring - 1;
  [[maybe_unused]] constexpr int kUnrolled = kCounts ? 1 : kStages;
#pragma unroll kUnrolled
  for (int step = 0; step < steps; ++step) {
    async_copy_wait<kStages - 2>();
    if (ring < kStages) async_copy_wait<kFewestStages - 2>();
    __syncthreads();  // everybody's copies are there, and the stage before has been used
    copy_step(step + ring - 1, before);
    sums.add(tile, stages[kCounts ? place : step % kStages], step * kStep);
    if constexpr (kCounts) {
      before = place;
      place = place + 1 == ring ? 0 : place + 1;
    }
  }
  store_sums(tile, sums, reinterpret_cast<float(*)[kRows + 4]>(memory), row_scale);
}

}  // namespace
}  // namespace quire::cuda
