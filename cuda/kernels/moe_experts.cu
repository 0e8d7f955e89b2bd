// Mixture of experts: the plan (which pair of token and choice goes where), two products over the
// experts in use, and the weighted sum of a token's answers. Nothing of the plan is known on the
// host: grids have the size of the worst case, and blocks without a tile leave.

#include <algorithm>

#include "cuda/device/block.cuh"
#include "cuda/device/wide.cuh"
#include "cuda/kernels/expert_product.h"
#include "cuda/kernels/fragment_product.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kPlanThreads = 512;
constexpr int kSumThreads = 128;

struct PlanParams {
  const std::int32_t* ids;  // [pairs]
  ExpertPlan plan;
  int num_pairs, num_experts;
};

// One block. Counts the pairs of each expert, gives it a range of the sorted pairs and its tiles,
// then puts the pairs there. Their order within an expert is arbitrary: no sum depends on it.
__global__ void __launch_bounds__(kPlanThreads)
    plan_experts_kernel(const __grid_constant__ PlanParams p) {
  release_next_kernel();
  await_previous_kernel();
  using Scan = cub::BlockScan<unsigned long long, kPlanThreads>;
  SHARED(scan_memory, typename Scan::TempStorage);
  DYN_SHARED(next, int);  // [experts]: how many pairs, then where the next one goes
  for (int e = threadIdx.x; e < p.num_experts; e += kPlanThreads) next[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += kPlanThreads) atomicAdd(&next[p.ids[i]], 1);
  __syncthreads();

  const int share = (p.num_experts + kPlanThreads - 1) / kPlanThreads;
  const int first = min(static_cast<int>(threadIdx.x) * share, p.num_experts);
  const int last = min(first + share, p.num_experts), size = p.plan.tile_tokens;
  const auto tiles_of = [&](int pairs) { return (pairs + size - 1) / size; };
  unsigned long long sums = 0, total = 0;  // pairs, and above them tiles
  for (int e = first; e < last; ++e) {
    sums +=
        static_cast<unsigned long long>(tiles_of(next[e])) << 32 | static_cast<unsigned>(next[e]);
  }
  Scan(scan_memory).ExclusiveSum(sums, sums, total);
  auto pair = static_cast<int>(sums), tile = static_cast<int>(sums >> 32);
  for (int e = first; e < last; ++e) {
    const int end = pair + next[e];
    next[e] = pair;
    for (; pair < end; pair = min(pair + size, end))
      p.plan.tiles[tile++] = {e, pair, min(pair + size, end)};
  }
  if (threadIdx.x == 0) *p.plan.num_tiles = static_cast<int>(total >> 32);
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += kPlanThreads)
    p.plan.pairs[atomicAdd(&next[p.ids[i]], 1)] = i;
}

// out[t] = Σ_j weights[t, j] · y[t · k + j]. Grid (tokens, columns); memory bound.
template <class Out, class Answer>
__global__ void __launch_bounds__(kSumThreads)
    sum_experts_kernel(View<Out, 2> out, const Answer* y, View<const float, 2> weights) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t token = blockIdx.x, k = weights.extent[1], width = out.extent[1];
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kSumThreads + threadIdx.x;
  if (i >= width) return;
  float sum = 0.f;
  for (std::int64_t j = 0; j < k; ++j)
    sum = fmaf(weights(token, j), static_cast<float>(y[(token * k + j) * width + i]), sum);
  out(token, i) = Out(sum);
}

MoeShape shape_of(const MoeExpertsArgs& args) {
  const std::int64_t rows = args.gate_up.data.extent(1);
  return {.experts = static_cast<int>(args.gate_up.data.extent(0)),
          .top_k = static_cast<int>(args.ids.extent(1)),
          .hidden = static_cast<int>(args.x.extent(1)),
          .intermediate = static_cast<int>(args.gated ? rows / 2 : rows),
          .gated = args.gated,
          .dtype = args.x.dtype(),
          .fp8 = is_fp8(args.gate_up.format)};
}

ExpertPlan make_plan(const MoeExpertsArgs& args, std::byte* memory, const ExpertScratch& scratch,
                     int tile_tokens, StreamRef stream) {
  const auto experts = static_cast<int>(args.gate_up.data.extent(0));
  const auto pairs = static_cast<int>(args.ids.numel());
  assert(args.ids.contiguous());
  const ExpertPlan plan{.tiles = reinterpret_cast<ExpertTile*>(memory + scratch.tiles),
                        .num_tiles = reinterpret_cast<std::int32_t*>(memory + scratch.num_tiles),
                        .pairs = reinterpret_cast<std::int32_t*>(memory + scratch.pairs),
                        .max_tiles = max_tiles(pairs, experts, tile_tokens),
                        .tile_tokens = tile_tokens};
  const PlanParams p{static_cast<const std::int32_t*>(args.ids.data()), plan, pairs, experts};
  CUDA_CHECK(launch(plan_experts_kernel, dim3(1), dim3(kPlanThreads),
                    static_cast<std::size_t>(experts) * sizeof(int), native(stream), p));
  return plan;
}

void sum_experts(TensorView out, TensorView y, TensorView weights, StreamRef stream) {
  const dim3 grid(static_cast<unsigned>(out.extent(0)),
                  static_cast<unsigned>((out.extent(1) + kSumThreads - 1) / kSumThreads));
  dispatch_device_float(y.dtype(), [&]<class Answer>(Type<Answer>) {
    const auto sum = [&]<class Out>(Type<Out>) {
      CUDA_CHECK(launch(sum_experts_kernel<Out, Answer>, grid, dim3(kSumThreads), 0, native(stream),
                        device_view<Out, 2>(out), static_cast<const Answer*>(y.data()),
                        device_view<const float, 2>(weights)));
    };
    if (out.dtype() == DType::f32) return sum(Type<float>{});
    if constexpr (!std::is_same_v<Answer, float>) sum(Type<Answer>{});
  });
}

// Its kernel.
auto product_of(const ExpertProduct& product) {
  if (is_packed(product.weight.format)) {
    if (fragment_product_supports(product)) return fragment_mma;
    throw Failure(ErrorCode::internal,
                  "packed weights are multiplied with bf16 or f16 rows at multiples of 16 bytes");
  }
  return expert_product_mma_supports(product) ? expert_product_mma : expert_product_simt;
}

// A product of prompts, and x before it becomes fp8 or is interleaved.
struct PromptCall {
  ExpertProduct product;
  TensorView x;

  // room: for x as it is multiplied, with scales. Beside MXFP4 gathered rows are interleaved here,
  // and scattered ones are as such a product has written them.
  PromptCall(const ExpertProduct& p, std::byte* room, std::byte* scales) : product(p), x(p.x) {
    const std::int64_t rows = x.extent(0), depth = x.extent(1);
    if (is_mxfp4(p.weight) && p.rows == ExpertRows::gather && x.dtype() == DType::bf16) {
      product.x = TensorView(room, DType::bf16, {rows, depth});
      product.interleaves = true;
    }
    if (!is_fp8(p.weight.format) || x.dtype() == DType::f32) return;
    product.x = TensorView(room, DType::fp8_e4m3, {rows, depth});
    product.x_scales = TensorView(scales, DType::f32, {(depth + kFp8Block - 1) / kFp8Block, rows});
  }
  bool supported() const {
    return expert_product_wgmma_supports(product) && (product.x_scales.empty() || is_wide(x)) &&
           (!product.interleaves || is_aligned(x));
  }
  void multiply(const ExpertPlan& plan, StreamRef stream) const {
    if (!product.x_scales.empty()) quantize_groups(product.x, product.x_scales, x, stream);
    if (product.interleaves) interleave_groups(product.x, x, stream);
    expert_product_wgmma(product, plan, stream);
  }
  static bool is_mxfp4(const Weight& weight) { return weight.format == WeightFormat::mxfp4; }
};

bool has_many(std::int64_t rows_of_expert) { return rows_of_expert > kManyTileTokens / 2; }

// Of a product on tensor cores.
int most_tile_tokens(const ExpertProduct& product) {
  return is_packed(product.weight.format) ? fragment_tile_tokens(product.weight.group)
                                          : expert_tile_tokens(product);
}

}  // namespace

void moe_experts(const MoeExpertsArgs& args, StreamRef stream) {
  const std::int64_t pairs = args.ids.numel();
  if (pairs == 0) return;
  const MoeShape shape = shape_of(args);
  const ExpertScratch scratch(pairs, shape);
  if (args.workspace.bytes() < scratch.bytes)
    throw Failure(ErrorCode::internal, "the workspace of moe_experts is too small");
  auto* const memory = static_cast<std::byte*>(args.workspace.data());
  const TensorView inner(memory + scratch.inner, shape.dtype, {pairs, shape.intermediate});
  const TensorView answers(memory + scratch.answers, shape.dtype, {pairs, shape.hidden});
  const ExpertProduct up{.out = inner,
                         .x = args.x,
                         .weight = args.gate_up,
                         .bias = args.gate_up_bias,
                         .rows = ExpertRows::gather,
                         .top_k = shape.top_k,
                         .activates = true,
                         .gated = args.gated,
                         .activation = args.activation,
                         .swiglu_alpha = args.swiglu_alpha,
                         .swiglu_limit = args.swiglu_limit};
  const ExpertProduct down{.out = answers,
                           .x = inner,
                           .weight = args.down,
                           .bias = args.down_bias,
                           .rows = ExpertRows::scatter};
  const PromptCall prompt_up(up, memory + scratch.answers, memory + scratch.x_scales),
      prompt_down(down, memory + scratch.inner_codes, memory + scratch.inner_scales);
  // There is room for codes of both, and what one interleaves the other takes so.
  const bool alike = is_fp8(args.down.format) == shape.fp8 &&
                     PromptCall::is_mxfp4(args.down) == PromptCall::is_mxfp4(args.gate_up);
  if (has_many(pairs / shape.experts) && alike && prompt_up.supported() &&
      prompt_down.supported()) {
    const ExpertPlan plan = make_plan(args, memory, scratch, kPromptTileTokens, stream);
    prompt_up.multiply(plan, stream);
    prompt_down.multiply(plan, stream);
    return sum_experts(args.out, answers, args.weights, stream);
  }
  const auto multiply_up = product_of(up), multiply_down = product_of(down);
  const bool on_tensor_cores =
      multiply_up != expert_product_simt && multiply_down != expert_product_simt;
  const int tile_tokens = on_tensor_cores && has_many(pairs / shape.experts)
                              ? std::min(most_tile_tokens(up), most_tile_tokens(down))
                              : kFewTileTokens;
  const ExpertPlan plan = make_plan(args, memory, scratch, tile_tokens, stream);
  multiply_up(up, plan, stream);
  multiply_down(down, plan, stream);
  sum_experts(args.out, answers, args.weights, stream);
}

void quantized_linear(TensorView out, TensorView x, const Weight& weight, TensorView bias,
                      StreamRef stream) {
  if (out.numel() == 0) return;
  const ExpertProduct product{.out = out, .x = x, .weight = weight, .bias = bias};
  const auto multiply = product_of(product);
  if (multiply == fragment_mma && x.extent(0) <= kFewRows)
    return few_fragments({out, x, weight, bias}, stream);
  const int tile_tokens = multiply != expert_product_simt && has_many(x.extent(0))
                              ? most_tile_tokens(product)
                              : kFewTileTokens;
  const ExpertPlan plan{
      .max_tiles = static_cast<int>((x.extent(0) + tile_tokens - 1) / tile_tokens),
      .tile_tokens = tile_tokens};
  multiply(product, plan, stream);
}

}  // namespace quire::cuda
