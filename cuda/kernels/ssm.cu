// Mamba2's scan, token by token, with the state in registers. Rows of a head's state depend on no
// other, so a block has some rows of one head of one request. Decode is bound by reading and
// writing the state; prefill by the chain of tokens, whose next inputs are under way while one is
// computed. The same bits however the tokens are cut into steps.

#include "cuda/device/any_view.cuh"
#include "cuda/device/softplus.cuh"
#include "cuda/device/state_lane.cuh"
#include "cuda/device/state_steps.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

template <class State>
struct ScanParams {
  AnyView out, x, b, c, dt;
  View<State, 4> state;  // [blocks, heads, head_dim, state_dim]
  const float *a_log, *dt_bias, *d_skip;
  StateSteps steps;
  int heads_per_group, head_dim, state_dim;
  float dt_min, dt_max;
};

// What one token brings to all rows.
template <int kStateDim>
struct ScanToken {
  alignas(16) float b[kStateDim], c[kStateDim];
  float decay, width;  // width: the discretised dt
};

// A warp's share of a token on its way to shared memory: the first warp brings b and dt, the second
// c, the others nothing.
template <class State, int kStateDim>
struct ScanFetch {
  static constexpr int kPerLane = kStateDim / 32;
  float values[kPerLane] = {}, dt = 0.f;

  __device__ __forceinline__ void load(const ScanParams<State>& p, int token, int head) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp > 1) return;
    const std::int64_t group = head / p.heads_per_group;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int n = lane + 32 * i;
      values[i] = n < p.state_dim ? (warp == 0 ? p.b : p.c).load(token, group, n) : 0.f;
    }
    dt = p.dt.load(0, token, head);
  }

  __device__ __forceinline__ void store(const ScanParams<State>& p, ScanToken<kStateDim>& to,
                                        int head) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp > 1) return;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) (warp == 0 ? to.b : to.c)[lane + 32 * i] = values[i];
    if (threadIdx.x == 0) {
      to.width = fminf(fmaxf(softplus(dt + p.dt_bias[head]), p.dt_min), p.dt_max);
      to.decay = expf(-expf(p.a_log[head]) * to.width);
    }
  }
};

// Rows of the state, one line each.
template <int kStateDim>
struct ScanRow : StateLane<kStateDim> {
  using Lane = StateLane<kStateDim>;
  using Lane::first, Lane::s, Lane::kRuns;
  using Lane::Lane;

  // S ← decay · S + input · b; returns S · c of the row to all its lanes.
  __device__ __forceinline__ float pass(const ScanToken<kStateDim>& token, float input) {
    float part[4] = {};
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int n = 16 * i + first + j;
        s[i][j] = fmaf(input, token.b[n], token.decay * s[i][j]);
        part[j] = fmaf(s[i][j], token.c[n], part[j]);
      }
    }
    return Lane::line_sum(part);
  }
};

// Grid (rows, heads, requests). kKeeps: states behind single tokens are kept, too.
template <class State, int kStateDim, bool kKeeps>
__global__ void __launch_bounds__(kStateWarps * 32)
    selective_scan_kernel(const __grid_constant__ ScanParams<State> p) {
  SHARED(tokens, ScanToken<kStateDim>[2]);
  const int head = static_cast<int>(blockIdx.y);
  const StateStep step = p.steps(static_cast<int>(blockIdx.z));
  if (step.first == step.last) return;
  ScanRow<kStateDim> row(p.head_dim, p.state_dim);
  const auto in_block = [&](int block) {
    return [&, block](int n) -> State& { return p.state(block, head, row.line, n); };
  };
  ScanFetch<State, kStateDim> fetch;
  fetch.load(p, step.first, head);
  if (step.read >= 0) row.read(in_block(step.read));
  fetch.store(p, tokens[0], head);
  __syncthreads();
  const float skip = p.d_skip[head];
  for (int t = step.first; t < step.last; ++t) {
    const int stage = (t - step.first) % 2;
    const float x = row.has_line() ? p.x.load(t, head, row.line) : 0.f;
    if (t + 1 < step.last) fetch.load(p, t + 1, head);
    const float y = row.pass(tokens[stage], tokens[stage].width * x);
    if (row.is_first()) p.out.store(t, head, row.line, y + skip * x);
    if constexpr (kKeeps) {
      if (const int kept = p.steps.kept_after(t); kept >= 0)
        row.template write_rounded<State>(in_block(kept));
    }
    if (t + 1 < step.last) fetch.store(p, tokens[1 - stage], head);
    __syncthreads();
  }
  if (step.write >= 0) row.template write<State>(in_block(step.write));
}

template <class State>
void launch_scan(const ScanArgs& args, StreamRef stream) {
  const std::int64_t heads = args.x.extent(1), head_dim = args.x.extent(2),
                     state_dim = args.b.extent(2);
  const ScanParams<State> p{
      .out = AnyView(args.out),
      .x = AnyView(args.x),
      .b = AnyView(args.b),
      .c = AnyView(args.c),
      .dt = AnyView(args.dt),
      .state = device_view<State, 4>(args.state),
      .a_log = static_cast<const float*>(args.a_log.data()),
      .dt_bias = static_cast<const float*>(args.dt_bias.data()),
      .d_skip = static_cast<const float*>(args.d_skip.data()),
      .steps = StateSteps(args),
      .heads_per_group = static_cast<int>(heads / args.b.extent(1)),
      .head_dim = static_cast<int>(head_dim),
      .state_dim = static_cast<int>(state_dim),
      .dt_min = args.dt_min,
      .dt_max = args.dt_max};
  const dim3 grid(static_cast<unsigned>((head_dim + kStateLines - 1) / kStateLines),
                  static_cast<unsigned>(heads), static_cast<unsigned>(args.state_read.extent(0)));
  const auto go = [&](auto kernel) {
    CUDA_CHECK(launch(kernel, grid, dim3(kStateWarps * 32), 0, native(stream), p));
  };
  const auto go_for = [&]<int kStateDim>(std::integral_constant<int, kStateDim>) {
    if (args.token_states.empty()) return go(selective_scan_kernel<State, kStateDim, false>);
    go(selective_scan_kernel<State, kStateDim, true>);
  };
  if (state_dim <= 32) return go_for(std::integral_constant<int, 32>());
  if (state_dim <= 128) return go_for(std::integral_constant<int, 128>());
  if (state_dim <= 256) return go_for(std::integral_constant<int, 256>());
  throw Failure(ErrorCode::unsupported, "a scan with a state of more than 256 elements on CUDA");
}

}  // namespace

void selective_scan(const ScanArgs& args, StreamRef stream) {
  if (args.x.extent(0) == 0) return;
  dispatch_device_float(args.state.dtype(),
                        [&]<class State>(Type<State>) { launch_scan<State>(args, stream); });
}

}  // namespace quire::cuda
