#pragma once
// Expert products on tensor cores: bf16 and f16, and MXFP4 or fp8 weights that are unpacked in
// registers.
// With few tokens an expert bound by reading its weights, with many by the tensor cores. Weights
// are the rows of a tile's product and tokens its columns, so that few tokens waste little. A block
// has 128 rows of an expert's matrix; they and its tokens pass through a ring of stages, 64 columns
// of K at a time. The sum of an element is made in one order, whatever else is in the batch. Where
// scales of long rows leave too little shared memory the ring is shorter, or tiles have few tokens.

#include "cuda/kernels/expert_stages.cuh"

namespace quire::cuda {
namespace {

// Sums of a warp: 16 rows of either half.
template <class Format, int kTokens>
struct WarpSums {
  FragmentC sum[2][kTokens / 8];

  // The first kUsed times eight tokens; scales: of the step, left: columns from it on.
  template <int kUsed>
  __device__ __forceinline__ void add(const ProductStage<Format, kTokens>& stage,
                                      const typename Format::Scale* scales, int left) {
    if constexpr (Format::kFoldDepth != 0) {
      add_whole<kUsed>(stage, scales);
    } else {
      add_slices<kUsed>(stage, scales, left);
    }
  }

 private:
  __device__ __forceinline__ static int row(int half) {
    return half * kHalf + static_cast<int>(threadIdx.x) / 32 * 16 + token();
  }
  __device__ __forceinline__ static int token() { return static_cast<int>(threadIdx.x) % 32 / 4; }

  template <int kUsed>
  __device__ __forceinline__ void add_slices(const ProductStage<Format, kTokens>& stage,
                                             const typename Format::Scale* scales, int left) {
#pragma unroll
    for (int slice = 0; slice < 2; ++slice) {
      if (kUsed > 2 && slice * kSlice >= left) break;
      FragmentB x[kUsed][2];
#pragma unroll
      for (int n = 0; n < kUsed; ++n)
        Format::tokens(x[n], lane_slice(stage.x[slice][n * 8 + token()]));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        FragmentA w[2];
        Format::weights(w, stage.weight[slice][row(half)], stage.weight[slice][row(half) + 8]);
        if constexpr (Format::kScaleDepth != 0) {
          add_scaled<kUsed>(sum[half], w, x, Format::scale(scales[row(half)]),
                            Format::scale(scales[row(half) + 8]));
        } else {
          multiply<kUsed>(sum[half], w, x);
        }
      }
    }
  }
  // A lane has elements 16 · (lane % 4) … + 15 of a row, which are under one scale.
  template <int kUsed>
  __device__ __forceinline__ void add_whole(const ProductStage<Format, kTokens>& stage,
                                            const typename Format::Scale* scales) {
    const int quarter = static_cast<int>(threadIdx.x) % 4;
    FragmentB x[2][kUsed][2];
#pragma unroll
    for (int n = 0; n < kUsed; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto* from = &stage.x[0][n * 8 + token()][stage.x_place(token(), quarter * 2 + i)];
        Format::tokens(x[i][n], *reinterpret_cast<const LaneSlice*>(from));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto words = [&](int r) {
        return *reinterpret_cast<const uint2*>(&stage.weight[0][r][quarter * 8]);
      };
      const auto factor = [&](int r) {
        return Format::pair_of(scales[folded_place(quarter / 2, r)]);
      };
      const uint2 low = words(row(half)), high = words(row(half) + 8);
      const auto low_factor = factor(row(half)), high_factor = factor(row(half) + 8);
      FragmentA w[2];
      Format::weights(w, low.x, high.x, low_factor, high_factor);
      multiply<kUsed>(sum[half], w, x[0]);
      Format::weights(w, low.y, high.y, low_factor, high_factor);
      multiply<kUsed>(sum[half], w, x[1]);
    }
  }

  template <int kUsed>
  __device__ __forceinline__ static void multiply(FragmentC (&sums)[kTokens / 8],
                                                  const FragmentA (&w)[2],
                                                  const FragmentB (&x)[kUsed][2]) {
#pragma unroll
    for (int n = 0; n < kUsed; ++n) {
      mma<typename Format::Element>(sums[n], w[0], x[n][0]);
      mma<typename Format::Element>(sums[n], w[1], x[n][1]);
    }
  }
  template <int kUsed>
  __device__ __forceinline__ static void add_scaled(FragmentC (&sums)[kTokens / 8],
                                                    const FragmentA (&w)[2],
                                                    const FragmentB (&x)[kUsed][2], float low,
                                                    float high) {
#pragma unroll
    for (int n = 0; n < kUsed; ++n) {
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

// A thread's row of scales, to shared memory. Those that weights are multiplied by are relative to
// the largest: returns what the row's sums are to be multiplied by. Zeros make a last four whole.
template <class Format, int kTokens>
__device__ __forceinline__ float load_scales(const ProductTile<Format, kTokens>& t,
                                             typename Format::Scale* scales) {
  static_assert(kThreads == kRows);
  const MmaProduct<Format>& p = t.p;
  const int row = static_cast<int>(threadIdx.x), groups = p.scale_columns;
  const int weight_row = t.weight_row(row),
            scale_row = Format::kFoldDepth != 0 ? weight_row : weight_row / p.scale_rows;
  const auto* from = p.scales + t.tile.expert * p.expert_scales + scale_row * p.scale_stride;
  if constexpr (Format::kFoldDepth == 0) {
#pragma unroll 4
    for (int g = 0; g < groups; ++g) scales[g * kRows + row] = from[g];
    return 1.f;
  } else {
    static_assert(sizeof *from == 1);
    auto* const words = reinterpret_cast<std::uint32_t*>(scales) + row;
    int largest = 0;
    const auto four = [&](int begin, int count) {
      std::uint32_t word = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int scale = i < count ? from[begin + i] : 0;
        largest = max(largest, scale);
        word |= static_cast<std::uint32_t>(scale) << i * 8;
      }
      words[begin / 4 * kRows] = word;
    };
#pragma unroll 4
    for (int g = 0; g + 4 <= groups; g += 4) four(g, 4);
    if (groups % 4 != 0) four(groups / 4 * 4, groups % 4);
    const std::uint32_t relative = relative_step(largest) * 0x01010101u;
#pragma unroll 4
    for (int g = 0; g < groups; g += 4) words[g / 4 * kRows] += relative;
    return relative_scale(largest);
  }
}

// Where stages are known, so are addresses in them; with many tokens products are what counts.
template <class Format, int kTokens>
constexpr bool kShortens = kTokens != kFewTileTokens&& Format::kFoldDepth == 0;
// Blocks for which a multiprocessor of Hopper is to have registers, where it has shared memory.
template <class Format, int kTokens>
constexpr int kResident = kShortens<Format, kTokens>  ? 2
                          : kTokens == kFewTileTokens ? Format::kFewResident
                                                      : 3;

// The loop over K, for the first kUsed times eight tokens of a tile; the ring's first stages are on
// their way.
template <int kUsed, class Format, int kTokens>
__device__ __forceinline__ void multiply_steps(const ProductTile<Format, kTokens>& t,
                                               ProductStage<Format, kTokens>* stages, int ring,
                                               ProductCopies<Format, kTokens> copies,
                                               WarpSums<Format, kTokens>& sums) {
  const int steps = (t.p.depth + kStep - 1) / kStep;
  const auto scales_of = [&](int step) {
    const int k = step * kStep;
    if constexpr (Format::kFoldDepth != 0)
      return t.scales + folded_place(k / Format::kFoldDepth, 0);
    if constexpr (Format::kScaleDepth != 0)
      return t.scales + (t.p.scale_columns == 1 ? 0 : k / Format::kScaleDepth) * kRows;
    return t.scales;
  };
  if constexpr (kShortens<Format, kTokens>) {  // places in a ring that may be short are counted
    int place = 0, before = ring - 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      async_copy_wait<kStages - 2>();
      if (ring < kStages) async_copy_wait<kFewestStages - 2>();
      __syncthreads();  // everybody's copies are there, and the stage before has been used
      copies.copy(stages[before], step + ring - 1);
      async_copy_commit();
      sums.template add<kUsed>(stages[place], scales_of(step), t.p.depth - step * kStep);
      before = place;
      place = place + 1 == ring ? 0 : place + 1;
    }
  } else {
#pragma unroll 1
    for (int first = 0; first < steps; first += kStages) {
#pragma unroll
      for (int i = 0; i < kStages; ++i) {
        if (first + i >= steps) break;
        async_copy_wait<kStages - 2>();
        __syncthreads();  // as above
        copies.copy(stages[(i + kStages - 1) % kStages], i + kStages - 1);
        async_copy_commit();
        sums.template add<kUsed>(stages[i], scales_of(first + i), t.p.depth - (first + i) * kStep);
      }
      copies.advance(kStages);
    }
  }
  async_copy_wait<0>();  // of steps behind the last
}

// Grid (columns, tiles).
template <class Format, int kTokens>
__global__ void __launch_bounds__(kThreads, kResident<Format, kTokens>)
    expert_mma_kernel(const __grid_constant__ MmaProduct<Format> p) {
  release_next_kernel();
  await_previous_kernel();
  using Stage = ProductStage<Format, kTokens>;
  const int ring = kShortens<Format, kTokens> ? p.stages : kStages;
  static_assert(kTokens * (kRows + 4) * sizeof(float) <=
                (kShortens<Format, kTokens> ? kFewestStages : kStages) * sizeof(Stage));
  DYN_SHARED(memory, unsigned char);
  Stage* stages = reinterpret_cast<Stage*>(memory);
  auto* scales = reinterpret_cast<typename Format::Scale*>(memory + ring * sizeof(Stage));
  SHARED(row_scale, float[Format::kFoldDepth != 0 ? kRows : 1]);
  const ExpertTile range = p.block.tile(static_cast<int>(blockIdx.y));
  if (range.begin >= range.end) return;
  const int columns = p.output.gated ? kHalf : kRows;
  const ProductTile<Format, kTokens> tile{p, range, static_cast<int>(blockIdx.x) * columns, scales};
  const ProductCopies<Format, kTokens> copies(tile);
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < ring - 1) {
      copies.copy(stages[step], step);
      async_copy_commit();
    }
  }
  if constexpr (Format::kFoldDepth != 0) {
    row_scale[threadIdx.x] = load_scales(tile, scales);
  } else if constexpr (Format::kScaleDepth != 0) {
    load_scales(tile, scales);
  }
  WarpSums<Format, kTokens> sums{};
  if (kTokens == kFewTileTokens && range.end - range.begin <= 8) {
    multiply_steps<1>(tile, stages, ring, copies, sums);
  } else {
    multiply_steps<kTokens / 8>(tile, stages, ring, copies, sums);
  }
  store_sums(tile, sums, reinterpret_cast<float(*)[kRows + 4]>(memory), row_scale);
}

}  // namespace
}  // namespace quire::cuda
