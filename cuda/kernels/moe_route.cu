// Routing of tokens to experts: one warp per token, its scores in shared memory. Bound by latency:
// a round over the experts for each that is chosen.

#include "cuda/device/any_view.cuh"
#include "cuda/device/block_sum.cuh"
#include "cuda/device/ordered_key.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 4;

struct RouteParams {
  View<std::int32_t, 2> ids;
  View<float, 2> weights;
  AnyView logits, bias;  // [1, tokens, experts], [1, 1, experts]
  RouteScore score;
  GroupScore group_score;
  int groups, top_groups;
  bool renormalize;
  float scale;
};

// Descending by rating, ascending by expert; 0 comes after every expert.
__device__ __forceinline__ unsigned long long order_of(float rating, int expert) {
  return static_cast<unsigned long long>(ordered_key(rating + 0.f)) << 32 |
         (0xffffffffu - static_cast<unsigned>(expert));
}
__device__ __forceinline__ int expert_of(unsigned long long order) {
  return static_cast<int>(0xffffffffu - static_cast<unsigned>(order));
}

// One token's experts.
struct RouteRow {
  unsigned long long* order;  // [experts]
  float* score;               // [experts]
  float* group;               // [groups]

  __host__ __device__ static std::size_t bytes(int experts, int groups) {
    return (experts * (sizeof *order + sizeof *score) + groups * sizeof *group + 7) / 8 * 8;
  }
  __device__ RouteRow(unsigned char* memory, int experts)
      : order(reinterpret_cast<unsigned long long*>(memory)),
        score(reinterpret_cast<float*>(order + experts)),
        group(score + experts) {}
};

__device__ void score_experts(const RouteParams& p, const RouteRow& row, int token, int experts) {
  const int lane = threadIdx.x % 32;
  const bool softmax = p.score == RouteScore::softmax;
  float top = -INFINITY, total = 0.f;
  for (int e = lane; e < experts; e += 32) top = fmaxf(top, p.logits.load(0, token, e));
  top = warp_reduce(top, Max{});
  for (int e = lane; e < experts; e += 32) {
    const float logit = p.logits.load(0, token, e);
    row.score[e] = softmax ? expf(logit - top) : 1.f / (1.f + expf(-logit));
    total += row.score[e];
  }
  total = warp_reduce(total, Add{});
  for (int e = lane; e < experts; e += 32) {
    if (softmax) row.score[e] /= total;
    const float bias = p.bias.data == nullptr ? 0.f : p.bias.load(0, 0, e);
    row.order[e] = order_of(row.score[e] + bias, e);
  }
  __syncwarp();
}

// Experts outside of the best groups come last.
__device__ void leave_out_groups(const RouteParams& p, const RouteRow& row, int experts) {
  const int lane = threadIdx.x % 32, size = experts / p.groups;
  for (int g = lane; g < p.groups; g += 32) {
    float best = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float rating = key_value(static_cast<std::uint32_t>(row.order[e] >> 32));
      second = fmaxf(second, fminf(best, rating));
      best = fmaxf(best, rating);
    }
    const bool one = p.group_score == GroupScore::best || size == 1;
    row.group[g] = one ? best : best + second;
  }
  __syncwarp();
  for (int g = lane; g < p.groups; g += 32) {
    int better = 0;
    for (int o = 0; o < p.groups; ++o) {
      better += row.group[o] > row.group[g] || (row.group[o] == row.group[g] && o < g);
    }
    if (better < p.top_groups) continue;
    for (int e = g * size; e < (g + 1) * size; ++e) row.order[e] = order_of(-INFINITY, e);
  }
  __syncwarp();
}

__device__ void choose_experts(const RouteParams& p, const RouteRow& row, int token, int experts) {
  const int lane = threadIdx.x % 32, k = static_cast<int>(p.ids.extent[1]);
  float total = 0.f;
  for (int j = 0; j < k; ++j) {
    unsigned long long best = 0;
    for (int e = lane; e < experts; e += 32) best = max(best, row.order[e]);
    for (int lanes = 16; lanes != 0; lanes /= 2)
      best = max(best, __shfl_xor_sync(0xffffffffu, best, lanes));
    const int chosen = expert_of(best);
    total += row.score[chosen];
    if (lane == chosen % 32) row.order[chosen] = 0;  // the only lane that looks at it
    if (lane == j % 32) {
      p.ids(token, j) = chosen;
      p.weights(token, j) = row.score[chosen];
    }
  }
  const float factor = p.renormalize ? p.scale / (total + 1e-20f) : p.scale;
  for (int j = lane; j < k; j += 32) p.weights(token, j) *= factor;
}

__global__ void __launch_bounds__(kWarps * 32)
    moe_route_kernel(const __grid_constant__ RouteParams p) {
  release_next_kernel();
  await_previous_kernel();
  DYN_SHARED(memory, unsigned char);
  const int warp = threadIdx.x / 32, token = static_cast<int>(blockIdx.x) * kWarps + warp;
  const auto experts = static_cast<int>(p.logits.extent[2]);
  if (token >= p.logits.extent[1]) return;
  const RouteRow row(memory + warp * RouteRow::bytes(experts, p.groups), experts);
  score_experts(p, row, token, experts);
  if (p.top_groups < p.groups) leave_out_groups(p, row, experts);
  choose_experts(p, row, token, experts);
}

}  // namespace

void moe_route(const MoeRouteArgs& args, StreamRef stream) {
  const std::int64_t tokens = args.logits.extent(0), experts = args.logits.extent(1);
  assert(args.ids.extent(1) <= experts && experts % args.groups == 0);
  if (tokens == 0) return;
  const RouteParams p{.ids = device_view<std::int32_t, 2>(args.ids),
                      .weights = device_view<float, 2>(args.weights),
                      .logits = AnyView(args.logits),
                      .bias = AnyView(args.bias),
                      .score = args.score,
                      .group_score = args.group_score,
                      .groups = args.groups,
                      .top_groups = args.top_groups,
                      .renormalize = args.renormalize,
                      .scale = args.scale};
  CUDA_CHECK(launch(moe_route_kernel, dim3(static_cast<unsigned>((tokens + kWarps - 1) / kWarps)),
                    dim3(kWarps * 32),
                    kWarps * RouteRow::bytes(static_cast<int>(experts), args.groups),
                    native(stream), p));
}

}  // namespace quire::cuda
