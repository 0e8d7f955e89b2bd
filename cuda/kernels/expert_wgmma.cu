// Expert products of prompts on Hopper's warpgroup products: bf16 and f16, fp8 by fp8, and MXFP4 by
// bf16. As in expert_mma.cu weights are the rows of a tile's product and tokens its columns. A
// block takes item after item of 256 rows by 128 tokens (64 where there are no more); of either
// half of the rows each of its two warpgroups has 64, gates beside their partners. The sum of an
// element is made in one order, whatever else is in the batch. It is not that of expert_mma.cu, and
// fp8 rounds tokens: which of the two a token meets depends on how many are in the step.

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/prompt_sums.cuh"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

// By way of shared memory, so that a token's columns are written side by side.
template <class T, class Out>
__device__ __forceinline__ void store_sums(const PromptProduct& p, const PromptItem& item,
                                           const LanePlace& place, const PromptSums<T>& sums,
                                           void* room) {
  using Row = Out[kHalfRows + kVecWidth<Out>];
  static_assert(kTokens * sizeof(Row) <= kSumsBytes);
  Row* const rows = static_cast<Row*>(room);
  const ExpertOutput& output = p.output;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (h == 1 && output.gated) break;
    const int column0 = item.column0 + h * kHalfRows;
    __syncthreads();  // nobody reads what the room held
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = place.row(i), column = min(column0 + row, output.columns - 1);
      const ExpertOutput::Bias bias = output.bias_of(item.tile.expert, column);
      const float scale = p.row_scale(item, h, row), up_scale = p.row_scale(item, 1, row);
      const int at = kIsMxfp4<T> && p.interleaves ? interleaved(row) : row;
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int token = n * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + j;
          const float sum = sums.half[h][n].r[2 * i + j] * scale;
          const float up = output.gated ? sums.half[1][n].r[2 * i + j] * up_scale : 0.f;
          rows[token][at] = Out(output.finish(sum + bias.own, up + bias.up));
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
                       stages_.room(behind(kStages<T> - 1)));
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
                                [&] { copies_.copy_next(behind(kAhead)); });
      stage_ = behind(1);
    }
    sums.finish();
  }

  __device__ __forceinline__ int behind(int steps) const {
    constexpr int kCount = kStages<T>;
    if constexpr ((kCount & (kCount - 1)) == 0) return (stage_ + steps) % kCount;
    const int stage = stage_ + steps;
    return stage < kCount ? stage : stage - kCount;
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
  const bool by_block = product.weight.format == WeightFormat::fp8_blocks, mxfp4 = kIsMxfp4<T>;
  PromptProduct p{
      .block = ExpertBlock(product, plan),
      .output = ExpertOutput(product),
      .x = static_cast<const char*>(product.x.data()),
      .weight = static_cast<const char*>(data.data()),
      .x_bytes = product.x.stride(0) * static_cast<std::int64_t>(size_of(product.x.dtype())),
      .row_bytes = data.stride(1) * size,
      .expert_bytes = data.stride(0) * size,
      .depth = static_cast<int>(product.x.extent(1)),
      .column_tiles = 0,
      .x_scales = static_cast<const float*>(product.x_scales.data()),
      .scales = mxfp4 ? nullptr : static_cast<const float*>(scales.data()),
      .exponents = mxfp4 ? static_cast<const std::uint8_t*>(scales.data()) : nullptr,
      .scale_stride = scales.empty() ? 0u : static_cast<std::uint32_t>(scales.stride(1)),
      .expert_scales = scales.empty() ? 0u : static_cast<std::uint32_t>(scales.stride(0)),
      .x_rows = static_cast<int>(product.x.extent(0)),
      .by_block = by_block,
      .interleaves = product.interleaves};
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
  if (!uses_warpgroups() || weight.data.rank() != 3 || (out != DType::bf16 && out != DType::f16))
    return false;
  if (!is_aligned(product.x) || !is_aligned(weight.data) || !is_aligned(product.out) ||
      product.out.extent(1) % kVecWidth<__half> != 0)
    return false;
  if (weight.format == WeightFormat::mxfp4)
    return dtype == DType::bf16 && out == dtype && product.x.extent(1) % kMxGroup == 0;
  if (dtype != DType::fp8_e4m3)
    return dtype == out && weight.data.dtype() == dtype && product.x.extent(1) % 8 == 0;
  // A warp's sixteen rows are under one row of scales.
  return is_fp8(weight.format) && product.x.extent(1) % 16 == 0 && product.out.extent(1) % 16 == 0;
}

void expert_product_wgmma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream) {
  assert(plan.tile_tokens == kTokens);
  const bool bf16 = product.out.dtype() == DType::bf16;
  if (product.weight.format == WeightFormat::mxfp4)
    return launch_product<Mxfp4, __nv_bfloat16>(product, plan, stream);
  if (product.x.dtype() == DType::fp8_e4m3) {
    if (bf16) return launch_product<__nv_fp8_e4m3, __nv_bfloat16>(product, plan, stream);
    return launch_product<__nv_fp8_e4m3, __half>(product, plan, stream);
  }
  if (bf16) return launch_product<__nv_bfloat16, __nv_bfloat16>(product, plan, stream);
  launch_product<__half, __half>(product, plan, stream);
}

}  // namespace quire::cuda
