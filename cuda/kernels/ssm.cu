// Mamba2's scan, token by token, with the state in registers. Rows of a head's state depend on no
// other, so a block has some rows of one head of one request. Decode is bound by reading and
// writing the state; prompts by the chain of tokens, whose next inputs are under way while one is
// computed, where they are not for scan_chunks.cu. The same bits however the tokens are cut into
// steps.

#include "cuda/device/state_lane.cuh"
#include "cuda/kernels/scan_heads.h"
#include "cuda/kernels/state_chunks.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

template <class State>
struct ScanParams : ScanHeads<State> {
  AnyView x, b, c;
  bool after_chunks;  // of a request's tokens those in whole chunks are done (scan_chunks.cu)

  ScanParams(const ScanArgs& args, bool after)
      : ScanHeads<State>(args), x(args.x), b(args.b), c(args.c), after_chunks(after) {}
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
      to.width = p.width(dt, head);
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
  release_next_kernel();
  await_previous_kernel();
  SHARED(tokens, ScanToken<kStateDim>[2]);
  const int head = static_cast<int>(blockIdx.y);
  const StateStep step = behind_chunks(p.steps(static_cast<int>(blockIdx.z)), p.after_chunks);
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
void launch_scan(const ScanArgs& args, bool after_chunks, StreamRef stream) {
  const ScanParams<State> p(args, after_chunks);
  const dim3 grid = p.grid(kStateLines, args.state_read.extent(0));
  const auto go = [&](auto kernel) {
    CUDA_CHECK(launch(kernel, grid, dim3(kStateWarps * 32), 0, native(stream), p));
  };
  const auto go_for = [&]<int kStateDim>(std::integral_constant<int, kStateDim>) {
    if (args.token_states.empty()) return go(selective_scan_kernel<State, kStateDim, false>);
    go(selective_scan_kernel<State, kStateDim, true>);
  };
  if (p.state_dim <= 32) return go_for(std::integral_constant<int, 32>());
  if (p.state_dim <= 128) return go_for(std::integral_constant<int, 128>());
  if (p.state_dim <= 256) return go_for(std::integral_constant<int, 256>());
  throw Failure(ErrorCode::unsupported, "a scan with a state of more than 256 elements on CUDA");
}

}  // namespace

void selective_scan(const ScanArgs& args, StreamRef stream) {
  if (args.x.extent(0) == 0) return;
  const bool after_chunks = selective_scan_chunks(args, stream);
  dispatch_device_float(args.state.dtype(), [&]<class State>(Type<State>) {
    launch_scan<State>(args, after_chunks, stream);
  });
}

}  // namespace quire::cuda
