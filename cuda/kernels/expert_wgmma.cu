// Expert products of prompts on Hopper's warpgroup products: bf16 and f16, and fp8 by fp8. As in
// expert_mma.cu weights are the rows of a tile's product and tokens its columns. A block takes item
// after item of 256 rows by 128 tokens (64 where there are no more); of either half of the rows
// each of its two warpgroups has 64, gates beside their partners. The sum of an element is made in
// one order, whatever else is in the batch. It is not that of expert_mma.cu, and fp8 rounds tokens:
// which of the two a token meets depends on how many are in the step.
//
// fp8 keeps sums of 128 columns of K apart, which the tensor cores make with few bits, and adds
// them up in float32, times the scales of tokens and weights (DeepSeek-V3, 2024, section 3.3.2).

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/prompt_copies.cuh"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

constexpr int kBlocks = kTokens / 8;

// A warp's place in the item: a lane has two rows of either half.
struct LanePlace {
  // From one lane, for ptxas to know that a warp has one.
  int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroupThreads, 0);

  // Of a half's 128.
  __device__ __forceinline__ static int warp_row() {
    return static_cast<int>(threadIdx.x) / 32 * 16;
  }
  __device__ __forceinline__ static int row(int i) {
    return warp_row() + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * i;
  }
};

// 128 bytes of K, for the first 8 · kSome tokens.
template <class T, int kSome>
__device__ __forceinline__ void multiply(FragmentC (&some)[kSome], const PromptStage& stage,
                                         int half, const LanePlace& place, bool accumulate) {
  const SharedMatrix weight = shared_matrix(&stage.weight[half][place.group * 64]),
                     x = shared_matrix(&stage.x);
#pragma unroll
  for (int k = 0; k < kPanelBytes / 32; ++k)
    warpgroup_mma<T>(some, weight.advanced(k * 32), x.advanced(k * 32), accumulate || k > 0);
}

// Products of a step are waited for behind those of the next.
template <class T>
struct PromptSums {
  static constexpr int kAhead = 2;  // steps to copy: one more stage is still being read
  FragmentC half[2][kBlocks];

  __device__ __forceinline__ PromptSums(const PromptProduct&, const PromptItem&, const LanePlace&) {
  }

  template <int kSome, class Copy>
  __device__ __forceinline__ void step(const PromptStages<T>& stages, int stage, int number,
                                       const LanePlace& place, const Copy& copy_next) {
    warpgroup_fence();
#pragma unroll
    for (int h = 0; h < 2; ++h)
      multiply<T, kSome>(reinterpret_cast<FragmentC(&)[kSome]>(half[h]), stages.stage[stage], h,
                         place, number > 0);
    warpgroup_commit();
    copy_next();
    warpgroup_wait<1>();
  }
  __device__ __forceinline__ void finish() {
    warpgroup_wait<0>();
    hold(half[0]);
    hold(half[1]);
  }
};

template <>
struct PromptSums<__nv_fp8_e4m3> {
  using T = __nv_fp8_e4m3;
  static constexpr int kAhead = 3;
  FragmentC half[2][kBlocks] = {};

  __device__ __forceinline__ PromptSums(const PromptProduct& p, const PromptItem& item,
                                        const LanePlace& place)
      : p_(p) {
    if (!p.by_block) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) scale_[h] = p.scale_place(item, h, place.warp_row());
  }

  template <int kSome, class Copy>
  __device__ __forceinline__ void step(const PromptStages<T>& stages, int stage, int number,
                                       const LanePlace& place, const Copy& copy_next) {
    FragmentC part[kSome];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float scale = p_.by_block ? p_.scales[scale_[h] + number] : 1.f;
      warpgroup_fence();
      multiply<T, kSome>(part, stages.stage[stage], h, place, false);
      warpgroup_commit();
      if (h == 0) copy_next();
      warpgroup_wait<0>();
      hold(part);
      add<kSome>(half[h], part, stages.x_scale[stage], scale);
    }
  }
  __device__ __forceinline__ void finish() {}

 private:
  const PromptProduct& p_;
  std::uint32_t scale_[2];  // of the halves' rows, for the first step

  template <int kSome>
  __device__ __forceinline__ static void add(FragmentC (&sums)[kBlocks],
                                             const FragmentC (&part)[kSome],
                                             const float (&x_scale)[kTokens], float scale) {
    const float* mine = x_scale + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < kSome; ++n) {
      const auto of_x = *reinterpret_cast<const float2*>(mine + n * 8);
      const float factor[2] = {of_x.x * scale, of_x.y * scale};
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n].r[i] = fmaf(part[n].r[i], factor[i % 2], sums[n].r[i]);
    }
  }
};

// By way of shared memory, so that a token's columns are written side by side: in the last step's
// stage, which nothing is copied to before the next step's barrier.
template <class T, class Out>
__device__ __forceinline__ void store_sums(const PromptProduct& p, const PromptItem& item,
                                           const LanePlace& place, const PromptSums<T>& sums,
                                           PromptStage& stage) {
  using Row = Out[kHalfRows + kVecWidth<Out>];
  static_assert(kTokens * sizeof(Row) <= sizeof stage);
  Row* const rows = reinterpret_cast<Row*>(&stage);
  const ExpertOutput& output = p.output;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (h == 1 && output.gated) break;
    const int column0 = item.column0 + h * kHalfRows;
    __syncthreads();  // nobody reads what the stage held
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = place.row(i), column = min(column0 + row, output.columns - 1);
      const ExpertOutput::Bias bias = output.bias_of(item.tile.expert, column);
      const float scale = p.row_scale(item, h, row), up_scale = p.row_scale(item, 1, row);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int token = n * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + j;
          const float sum = sums.half[h][n].r[2 * i + j] * scale;
          const float up = output.gated ? sums.half[1][n].r[2 * i + j] * up_scale : 0.f;
          rows[token][row] = Out(output.finish(sum + bias.own, up + bias.up));
        }
      }
    }
    __syncthreads();
    constexpr int kLanes = kHalfRows / kVecWidth<Out>;  // of a token
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int column = column0 + lane * kVecWidth<Out>;
    if (column >= output.columns) continue;
    Out* const out = static_cast<Out*>(output.out.data) + column;
    for (int token = static_cast<int>(threadIdx.x) / kLanes; token < item.tokens();
         token += kPromptThreads / kLanes) {
      const std::int64_t row = p.block.out_row(item.tile.begin + token);
      store_vec(out + row * output.out.stride[1], load_vec(&rows[token][lane * kVecWidth<Out>]));
    }
  }
}

template <class T, class Out>
class PromptBlock {
 public:
  __device__ __forceinline__ PromptBlock(const PromptProduct& p, PromptStages<T>& stages, int items)
      : p_(p), stages_(stages), copies_(p, stages, items) {
    for (int ahead = 0; ahead < kAhead; ++ahead) copies_.copy_next(ahead);
  }

  __device__ __forceinline__ void compute(int index) {
    PromptSums<T> sums(p_, PromptItem(p_, index), place_);
    if (PromptItem(p_, index).tokens() > kFewTokens) {
      multiply_steps<kBlocks>(sums);
    } else {
      multiply_steps<kBlocks / 2>(sums);
    }
    // Looked up again: registers are scarcer than reads.
    store_sums<T, Out>(p_, PromptItem(p_, index), place_, sums,
                       stages_.stage[(stage_ + kStages - 1) % kStages]);
  }

 private:
  // 8 · kSome tokens at most.
  template <int kSome>
  __device__ __forceinline__ void multiply_steps(PromptSums<T>& sums) {
    const int steps = (p_.depth + kStepDepth<T> - 1) / kStepDepth<T>;
    for (int step = 0; step < steps; ++step) {
      async_copy_wait<kAhead - 1>();
      fence_async_proxy();
      __syncthreads();  // this step's copies are there; what the next go to has been used
      sums.template step<kSome>(stages_, stage_, step, place_,
                                [&] { copies_.copy_next((stage_ + kAhead) % kStages); });
      stage_ = next_stage(stage_);
    }
    sums.finish();
  }

  static constexpr int kAhead = PromptSums<T>::kAhead;
  const PromptProduct& p_;
  PromptStages<T>& stages_;
  PromptCopies<T> copies_;
  LanePlace place_;
  int stage_ = 0;
};

// Grid (blocks), as many as there are multiprocessors.
template <class T, class Out>
__global__ void __launch_bounds__(kPromptThreads, 1)
    expert_wgmma_kernel(const __grid_constant__ PromptProduct p) {
  release_next_kernel();
  await_previous_kernel();
  if constexpr (!kHasWarpgroups) return;
  DYN_SHARED(memory, PromptStages<T>);
  const int items = *p.block.num_tiles * p.column_tiles;
  PromptBlock<T, Out> block(p, *memory, items);
  for (int i = static_cast<int>(blockIdx.x); i < items; i += static_cast<int>(gridDim.x))
    block.compute(i);
}

template <class T, class Out>
void launch_product(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream) {
  const TensorView &data = product.weight.data, &scales = product.weight.scales;
  const auto size = static_cast<std::int64_t>(size_of(data.dtype()));
  const bool by_block = product.weight.format == WeightFormat::fp8_blocks;
  PromptProduct p{
      .block = ExpertBlock(product, plan),
      .output = ExpertOutput(product),
      .x = static_cast<const char*>(product.x.data()),
      .weight = static_cast<const char*>(data.data()),
      .x_bytes = product.x.stride(0) * size,
      .row_bytes = data.stride(1) * size,
      .expert_bytes = data.stride(0) * size,
      .depth = static_cast<int>(product.x.extent(1)),
      .column_tiles = 0,
      .x_scales = static_cast<const float*>(product.x_scales.data()),
      .scales = static_cast<const float*>(scales.data()),
      .scale_stride = scales.empty() ? 0u : static_cast<std::uint32_t>(scales.stride(1)),
      .expert_scales = scales.empty() ? 0u : static_cast<std::uint32_t>(scales.stride(0)),
      .x_rows = static_cast<int>(product.x.extent(0)),
      .by_block = by_block};
  const int columns = product.gated ? kHalfRows : 2 * kHalfRows;
  p.column_tiles = (p.output.columns + columns - 1) / columns;
  const int blocks = std::min(plan.max_tiles * p.column_tiles, processor_count());
  CUDA_CHECK(launch(expert_wgmma_kernel<T, Out>, dim3(static_cast<unsigned>(blocks)),
                    dim3(kPromptThreads), sizeof(PromptStages<T>), native(stream), p));
}

}  // namespace

bool expert_product_wgmma_supports(const ExpertProduct& product) {
  const Weight& weight = product.weight;
  const DType dtype = product.x.dtype(), out = product.out.dtype();
  if (!is_hopper() || weight.data.rank() != 3 || (out != DType::bf16 && out != DType::f16))
    return false;
  if (!is_aligned(product.x) || !is_aligned(weight.data) || !is_aligned(product.out) ||
      product.out.extent(1) % kVecWidth<__half> != 0)
    return false;
  if (dtype != DType::fp8_e4m3)
    return dtype == out && weight.data.dtype() == dtype && product.x.extent(1) % 8 == 0;
  // A warp's sixteen rows are under one row of scales.
  return is_fp8(weight.format) && product.x.extent(1) % 16 == 0 && product.out.extent(1) % 16 == 0;
}

void expert_product_wgmma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream) {
  assert(plan.tile_tokens == kTokens);
  const bool bf16 = product.out.dtype() == DType::bf16;
  if (product.x.dtype() == DType::fp8_e4m3) {
    if (bf16) return launch_product<__nv_fp8_e4m3, __nv_bfloat16>(product, plan, stream);
    return launch_product<__nv_fp8_e4m3, __half>(product, plan, stream);
  }
  if (bf16) return launch_product<__nv_bfloat16, __nv_bfloat16>(product, plan, stream);
  launch_product<__half, __half>(product, plan, stream);
}

}  // namespace quire::cuda
