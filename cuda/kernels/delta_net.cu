// Gated delta rule, token by token, with the state in registers. Columns of a head's state depend
// on no other, so a block has some columns of one head of one request. Decode is bound by reading
// and writing the state; prompts by the chain of tokens, whose next inputs are under way while one
// is computed, where they are not for delta_chunks.cu. The same bits however the tokens are cut
// into steps.

#include "cuda/device/block_sum.cuh"
#include "cuda/device/softplus.cuh"
#include "cuda/device/state_lane.cuh"
#include "cuda/kernels/delta_heads.h"
#include "cuda/kernels/state_chunks.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

template <class State>
struct DeltaParams : DeltaHeads<State> {
  AnyView q, k, v;
  bool after_chunks;  // of a request's tokens those in whole chunks are done (delta_chunks.cu)

  DeltaParams(const DeltaRuleArgs& args, bool after)
      : DeltaHeads<State>(args), q(args.q), k(args.k), v(args.v), after_chunks(after) {}
};

// What one token brings to all columns.
template <int kKeyDim>
struct DeltaToken {
  alignas(16) float q[kKeyDim], k[kKeyDim];
  float decay, beta;
};

// A warp's share of a token on its way to shared memory: the first warp brings q and the gates,
// the second k, the others nothing.
template <class State, int kKeyDim>
struct DeltaFetch {
  static constexpr int kPerLane = kKeyDim / 32;
  float row[kPerLane] = {}, a = 0.f, b = 0.f;

  __device__ __forceinline__ void load(const DeltaParams<State>& p, int token, int head) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp > 1) return;
    const std::int64_t key_head = head / p.heads_per_key;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int d = lane + 32 * i;
      row[i] = d < p.key_dim ? (warp == 0 ? p.q : p.k).load(token, key_head, d) : 0.f;
    }
    a = p.a.load(0, token, head);
    b = p.b.load(0, token, head);
  }

  __device__ __forceinline__ void store(const DeltaParams<State>& p, DeltaToken<kKeyDim>& to,
                                        int head) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp > 1) return;
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) squares += row[i] * row[i];
    float scale = rsqrtf(warp_reduce(squares, Add{}) + kNormEps);
    if (warp == 0) scale *= rsqrtf(static_cast<float>(p.key_dim));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) (warp == 0 ? to.q : to.k)[lane + 32 * i] = row[i] * scale;
    if (threadIdx.x == 0) {
      to.decay = expf(-expf(p.a_log[head]) * softplus(a + p.dt_bias[head]));
      to.beta = 1.f / (1.f + expf(-b));
    }
  }
};

// Columns of the state, one line each.
template <int kKeyDim>
struct DeltaColumn : StateLane<kKeyDim> {
  using Lane = StateLane<kKeyDim>;
  using Lane::first, Lane::s, Lane::kRuns;
  using Lane::Lane;

  // Sᵀ · x of the column; all its lanes get it.
  __device__ __forceinline__ float recall(const float* x) const {
    float part[4] = {};
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) part[j] = fmaf(s[i][j], x[16 * i + first + j], part[j]);
    }
    return Lane::line_sum(part);
  }

  // S ← decay · S + x ⊗ delta.
  __device__ __forceinline__ void update(float decay, const float* x, float delta) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = fmaf(x[16 * i + first + j], delta, decay * s[i][j]);
    }
  }
};

// Grid (columns, value heads, requests). kKeeps: states behind single tokens are kept, too.
template <class State, int kKeyDim, bool kKeeps>
__global__ void __launch_bounds__(kStateWarps * 32)
    delta_rule_kernel(const __grid_constant__ DeltaParams<State> p) {
  release_next_kernel();
  await_previous_kernel();
  SHARED(tokens, DeltaToken<kKeyDim>[2]);
  const int head = static_cast<int>(blockIdx.y);
  const StateStep step = behind_chunks(p.steps(static_cast<int>(blockIdx.z)), p.after_chunks);
  if (step.first == step.last) return;
  DeltaColumn<kKeyDim> column(p.value_dim, p.key_dim);
  const auto in_block = [&](int block) {
    return [&, block](int row) -> State& { return p.state(block, head, row, column.line); };
  };
  DeltaFetch<State, kKeyDim> fetch;
  fetch.load(p, step.first, head);
  if (step.read >= 0) column.read(in_block(step.read));
  fetch.store(p, tokens[0], head);
  __syncthreads();
  for (int t = step.first; t < step.last; ++t) {
    const int stage = (t - step.first) % 2;
    const DeltaToken<kKeyDim>& token = tokens[stage];
    const float value = column.has_line() ? p.v.load(t, head, column.line) : 0.f;
    if (t + 1 < step.last) fetch.load(p, t + 1, head);
    const float delta = token.beta * (value - token.decay * column.recall(token.k));
    column.update(token.decay, token.k, delta);
    const float out = column.recall(token.q);
    if (column.is_first()) p.out.store(t, head, column.line, out);
    if constexpr (kKeeps) {
      if (const int kept = p.steps.kept_after(t); kept >= 0)
        column.template write_rounded<State>(in_block(kept));
    }
    if (t + 1 < step.last) fetch.store(p, tokens[1 - stage], head);
    __syncthreads();
  }
  if (step.write >= 0) column.template write<State>(in_block(step.write));
}

template <class State>
void launch_delta(const DeltaRuleArgs& args, bool after_chunks, StreamRef stream) {
  const DeltaParams<State> p(args, after_chunks);
  const dim3 grid = p.grid(kStateLines, args.state_read.extent(0));
  const auto go = [&](auto kernel) {
    CUDA_CHECK(launch(kernel, grid, dim3(kStateWarps * 32), 0, native(stream), p));
  };
  const auto go_for = [&]<int kKeyDim>(std::integral_constant<int, kKeyDim>) {
    if (args.token_states.empty()) return go(delta_rule_kernel<State, kKeyDim, false>);
    go(delta_rule_kernel<State, kKeyDim, true>);
  };
  if (p.key_dim <= 64) return go_for(std::integral_constant<int, 64>());
  if (p.key_dim <= 128) return go_for(std::integral_constant<int, 128>());
  if (p.key_dim <= 256) return go_for(std::integral_constant<int, 256>());
  throw Failure(ErrorCode::unsupported, "a delta rule with keys of more than 256 elements on CUDA");
}

}  // namespace

void gated_delta_rule(const DeltaRuleArgs& args, StreamRef stream) {
  if (args.q.extent(0) == 0) return;
  const bool after_chunks = delta_rule_chunks(args, stream);
  dispatch_device_float(args.state.dtype(), [&]<class State>(Type<State>) {
    launch_delta<State>(args, after_chunks, stream);
  });
}

}  // namespace quire::cuda
