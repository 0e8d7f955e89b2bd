// Expert products without tensor cores: float32 models, odd widths, and the reference that the
// tensor-core kernel is compared with on a device. A block has 32 columns of a tile; x and weights
// pass through shared memory some columns of K at a time. A sum is made in the order of K by one
// thread.

#include "cuda/device/expert_rows.cuh"
#include "cuda/device/mxfp4.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kColumns = 32, kDepth = 32;  // of a block; of K at a time
constexpr int kThreads = 128, kGroups = kThreads / kColumns;
constexpr int kTokens = kFewTileTokens, kThreadTokens = kTokens / kGroups;

// Where the scales of an fp8 weight are; of other formats not to be asked.
struct Fp8Scaling {
  const float* scales;
  std::int64_t expert_stride, row_stride;  // of scales
  int rows, depth;                         // under one scale

  explicit Fp8Scaling(const Weight& weight)
      : scales(static_cast<const float*>(weight.scales.data())) {
    const bool blocks = weight.format == WeightFormat::fp8_blocks;
    const int rank = weight.scales.rank(), per_matrix = blocks ? 2 : 1;
    expert_stride = rank > per_matrix ? weight.scales.stride(0) : 0;
    row_stride = is_fp8(weight.format) ? weight.scales.stride(rank - per_matrix) : 0;
    rows = blocks ? kFp8Block : 1;
    depth = blocks ? kFp8Block : static_cast<int>(weight.data.extent(weight.data.rank() - 1));
  }

  __device__ __forceinline__ float scale(int expert, int row, int k) const {
    return scales[expert * expert_stride + row / rows * row_stride + k / depth];
  }
};

// [experts, rows, K] of any format.
struct AnyWeight {
  AnyView data;  // plain
  const std::uint8_t* packed;
  const std::uint8_t* scales;
  std::int64_t groups_of_row, rows;
  WeightFormat format;
  Fp8Scaling fp8;

  explicit AnyWeight(const Weight& weight)
      : data(weight.data),
        packed(static_cast<const std::uint8_t*>(weight.data.data())),
        scales(static_cast<const std::uint8_t*>(weight.scales.data())),
        groups_of_row(data.extent[2] * 2 / kMxGroup),
        rows(data.extent[1]),
        format(weight.format),
        fp8(weight) {}

  __device__ float load(int expert, int row, int k) const {
    if (format == WeightFormat::plain) return data.load(expert, row, k);
    if (format != WeightFormat::mxfp4) {
      const auto* codes = static_cast<const __nv_fp8_e4m3*>(data.data);
      return static_cast<float>(codes[data.at(expert, row, k)]) * fp8.scale(expert, row, k);
    }
    const std::int64_t group = (expert * rows + row) * groups_of_row + k / kMxGroup;
    const unsigned pair = packed[group * kMxGroupBytes + k % kMxGroup / 2];
    return e2m1_value(k % 2 == 0 ? pair & 15u : pair >> 4) * mx_scale(scales[group]);
  }
};

struct SimtProduct {
  ExpertBlock block;
  ExpertOutput output;
  AnyView x;
  AnyWeight weight;
  int depth;
};

struct SimtStage {
  float x[kTokens][kDepth];
  float weight[2][kColumns][kDepth + 1];  // the gate's rows, then the other half's
};

__device__ void fill(SimtStage& stage, const SimtProduct& p, const ExpertTile& tile, int column0,
                     int k0) {
  for (int i = threadIdx.x; i < kTokens * kDepth; i += kThreads) {
    const int at = tile.begin + i / kDepth, k = k0 + i % kDepth;
    const bool in_range = at < tile.end && k < p.depth;
    stage.x[i / kDepth][i % kDepth] = in_range ? p.x.load(0, p.block.x_row(at), k) : 0.f;
  }
  const int halves = p.output.gated ? 2 : 1;
  for (int i = threadIdx.x; i < halves * kColumns * kDepth; i += kThreads) {
    const int half = i / (kColumns * kDepth), n = i / kDepth % kColumns, k = k0 + i % kDepth;
    const bool in_range = column0 + n < p.output.columns && k < p.depth;
    stage.weight[half][n][i % kDepth] =
        in_range ? p.weight.load(tile.expert, half * p.output.columns + column0 + n, k) : 0.f;
  }
}

// Grid (columns, tiles).
__global__ void __launch_bounds__(kThreads)
    expert_simt_kernel(const __grid_constant__ SimtProduct p) {
  release_next_kernel();
  await_previous_kernel();
  SHARED(stage, SimtStage);
  const ExpertTile tile = p.block.tile(static_cast<int>(blockIdx.y));
  if (tile.begin >= tile.end) return;
  const int column0 = static_cast<int>(blockIdx.x) * kColumns;
  const int n = threadIdx.x % kColumns, group = threadIdx.x / kColumns;
  float sums[kThreadTokens] = {}, ups[kThreadTokens] = {};
  for (int k0 = 0; k0 < p.depth; k0 += kDepth) {
    __syncthreads();  // what the stage held has been used
    fill(stage, p, tile, column0, k0);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < kThreadTokens; ++i) {
        const float x = stage.x[group + i * kGroups][k];
        sums[i] = fmaf(stage.weight[0][n][k], x, sums[i]);
        if (p.output.gated) ups[i] = fmaf(stage.weight[1][n][k], x, ups[i]);
      }
    }
  }
  if (column0 + n >= p.output.columns) return;
#pragma unroll
  for (int i = 0; i < kThreadTokens; ++i) {
    const int at = tile.begin + group + i * kGroups;
    if (at < tile.end)
      p.output.store(tile.expert, p.block.out_row(at), column0 + n, sums[i], ups[i]);
  }
}

}  // namespace

void expert_product_simt(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream) {
  assert(plan.tile_tokens == kTokens);
  const SimtProduct p{.block = ExpertBlock(product, plan),
                      .output = ExpertOutput(product),
                      .x = AnyView(product.x),
                      .weight = AnyWeight(product.weight),
                      .depth = static_cast<int>(product.x.extent(1))};
  const dim3 grid(static_cast<unsigned>((product.out.extent(1) + kColumns - 1) / kColumns),
                  static_cast<unsigned>(plan.max_tiles));
  CUDA_CHECK(launch(expert_simt_kernel, grid, dim3(kThreads), 0, native(stream), p));
}

}  // namespace quire::cuda
