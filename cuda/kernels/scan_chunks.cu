// Mamba2's scan in chunks of 64 tokens. With g the sum of logarithms of decays from the chunk's
// first token on, d the discretised dt:
//   P[i, j] = exp(g[i] − g[j]) · d[j] · C[i] · B[j] + (i = j: d_skip), j ≤ i
//   out = exp(g) · C · Sᵀ + P · X;  S ← exp(g[last]) · S + (exp(g[last] − g) · d · X)ᵀ · B
// (Dao and Gu, Transformers are SSMs, arXiv 2405.21060). Products are of what was published in bf16
// or f16, which tensor cores multiply exactly; what is multiplied once more is split in two. A
// block has 64 rows of one head's state of one request. Four warps keep sixteen of them each in
// registers, as float32; four others make the next chunk's P meanwhile, and the inputs of the one
// after that are on their way. Bound by the chain of chunks. The bits of a chunk depend on nothing
// but its tokens and the state before it.

#include <algorithm>

#include "cuda/device/async_copy.cuh"
#include "cuda/kernels/scan_heads.h"
#include "cuda/kernels/state_chunks.cuh"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kStateDim = kLongestStateLine;
constexpr int kRowWarps = 4, kPrepareWarps = kBlocks;
constexpr int kScanThreads = (kRowWarps + kPrepareWarps) * 32;
constexpr int kRows = kRowWarps * kWarpLines;  // of the state
constexpr int kStateStride = kStateDim + 8, kRowStride = kRows + 8;

template <class T, class State>
struct ScanChunkParams : ScanHeads<State> {
  View<const T, 3> x, b, c;

  explicit ScanChunkParams(const ScanArgs& args)
      : ScanHeads<State>(args),
        x(device_view<const T, 3>(args.x)),
        b(device_view<const T, 3>(args.b)),
        c(device_view<const T, 3>(args.c)) {}
};

template <class T>
struct alignas(16) ScanInputs {
  T b[kChunk][kStateStride], c[kChunk][kStateStride], x[kChunk][kRowStride];
};
// What the state's warps read. Only blocks on and below the diagonal are written.
template <class T>
struct ScanMatrices {
  SplitMatrix<T> scores;  // P
  float answer[kChunk];   // of C · Sᵀ: exp(g)
  float write[kChunk];    // of X into the state: exp(g[last] − g) · d
  float decay;            // of the state: exp(g[last])
};
// Of one warp that prepares.
struct ScanScratch {
  float log_decay[kChunk], width[kChunk];
};
template <class T>
struct ScanMemory {
  ScanInputs<T> inputs[3];
  ScanMatrices<T> matrices[2];
  ScanScratch scratch[kPrepareWarps];
};

template <class T, class State>
__device__ __forceinline__ void copy_inputs(const ScanChunkParams<T, State>& p, ScanInputs<T>& to,
                                            int token, int head) {
  constexpr int kStatePieces = kStateDim / 8, kRowPieces = kRows / 8;
  constexpr int kStateStep = kScanThreads / kStatePieces, kRowStep = kScanThreads / kRowPieces;
  const int thread = static_cast<int>(threadIdx.x), group = head / p.heads_per_group;
  const int state_row = thread / kStatePieces, n = thread % kStatePieces * 8;
  const int x_row = thread / kRowPieces, column = thread % kRowPieces * 8;
  const int row = static_cast<int>(blockIdx.x) * kRows + column;
  const int state_bytes = n < p.state_dim ? 16 : 0, row_bytes = row < p.head_dim ? 16 : 0;
  const T* b = &p.b(token + state_row, group, state_bytes > 0 ? n : 0);
  const T* c = &p.c(token + state_row, group, state_bytes > 0 ? n : 0);
  const T* x = &p.x(token + x_row, head, row_bytes > 0 ? row : 0);
#pragma unroll
  for (int i = 0; i < kChunk; i += kStateStep) {
    async_copy<16>(&to.b[i + state_row][n], b, state_bytes);
    async_copy<16>(&to.c[i + state_row][n], c, state_bytes);
    b += kStateStep * p.b.stride[0];
    c += kStateStep * p.c.stride[0];
  }
#pragma unroll
  for (int i = 0; i < kChunk; i += kRowStep) {
    async_copy<16>(&to.x[i + x_row][column], x, row_bytes);
    x += kRowStep * p.x.stride[0];
  }
}

// One of the warps that make a chunk's matrices while the state's are busy with the one before: it
// has sixteen rows of P.
template <class T>
struct ScanPreparation {
  int warp, lane;
  float dt[2] = {};  // of the next chunk: tokens lane and lane + 32

  __device__ __forceinline__ ScanPreparation()
      : warp(static_cast<int>(threadIdx.x) / 32 - kRowWarps),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  template <class State>
  __device__ __forceinline__ void load_steps(const ScanChunkParams<T, State>& p, int token,
                                             int head) {
    dt[0] = p.dt.load(0, token + lane, head);
    dt[1] = p.dt.load(0, token + lane + 32, head);
  }

  // Every warp sums up all decays, for itself.
  template <class State>
  __device__ __forceinline__ void sum_up(const ScanChunkParams<T, State>& p, ScanScratch& scratch,
                                         ScanMatrices<T>& to, int head) {
    const float rate = -expf(p.a_log[head]) * 1.44269504f;
    float width[2], sum[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      width[i] = p.width(dt[i], head);
      sum[i] = rate * width[i];
    }
    const float last = sum_up_decays(sum, lane);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = lane + 32 * i;
      scratch.log_decay[token] = sum[i];
      scratch.width[token] = width[i];
      if (warp != 0) continue;
      to.answer[token] = exp2_approximate(sum[i]);
      to.write[token] = exp2_approximate(last - sum[i]) * width[i];
    }
    if (warp == 0 && lane == 0) to.decay = exp2_approximate(last);
    __syncwarp();
  }

  __device__ __forceinline__ void compare(const ScanInputs<T>& inputs, const ScanScratch& scratch,
                                          ScanMatrices<T>& to, float skip) {
    FragmentC cb[2 * kBlocks] = {};
#pragma unroll
    for (int n = 0; n < kStateDim; n += 16) {
      const FragmentA c = load_left(inputs.c, warp * 16, n);
#pragma unroll
      for (int other = 0; other < kBlocks; ++other) {
        if (other > warp) break;
        FragmentB b[2];
        load_by_columns(b, inputs.b, other * 16, n);
        mma<T>(cb[2 * other], c, b[0]);
        mma<T>(cb[2 * other + 1], c, b[1]);
      }
    }
    const int row0 = warp * 16 + lane / 4;
    const float log_decay[2] = {scratch.log_decay[row0], scratch.log_decay[row0 + 8]};
#pragma unroll
    for (int tile = 0; tile < 2 * kBlocks; ++tile) {
      if (tile / 2 > warp) break;
      const int column = tile * 8 + lane % 4 * 2;
      const float2 decayed = *reinterpret_cast<const float2*>(&scratch.log_decay[column]);
      const float2 width = *reinterpret_cast<const float2*>(&scratch.width[column]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row0 + 8 * half;
        const float first = exp2_approximate(log_decay[half] - decayed.x) * width.x;
        const float second = exp2_approximate(log_decay[half] - decayed.y) * width.y;
        const float* const sum = &cb[tile].r[2 * half];
        to.scores.store(row, column, score(row - column, first * sum[0], skip),
                        score(row - column - 1, second * sum[1], skip));
      }
    }
  }

  // Of a token that lies `ahead` of the other.
  static __device__ __forceinline__ float score(int ahead, float product, float skip) {
    return ahead < 0 ? 0.f : ahead == 0 ? product + skip : product;
  }
};

// A warp's rows of the state.
template <class T>
struct ScanState : StateLines<T, kStateDim> {
  using Lines = StateLines<T, kStateDim>;
  using Lines::lane;

  template <class State>
  __device__ __forceinline__ void pass(const ScanChunkParams<T, State>& p,
                                       const ScanInputs<T>& inputs, const ScanMatrices<T>& chunk,
                                       int token, int head) {
    typename Lines::OfTokens out;
    Lines::multiply(out, inputs.c);
    Lines::scale(out, chunk.answer);
    Lines::multiply_tokens(
        out, [&](int j) { return Lines::inputs(inputs.x, j * 16); }, chunk.scores);
    Lines::store(out, p.out, token, head, static_cast<int>(blockIdx.x) * kRows, p.head_dim);
    Lines::advance(
        chunk.decay, [&](int j) { return written(inputs, chunk, j * 16); }, inputs.b);
  }

 private:
  // What sixteen tokens write.
  __device__ __forceinline__ SplitA written(const ScanInputs<T>& inputs,
                                            const ScanMatrices<T>& chunk, int token) const {
    const FragmentA x = Lines::inputs(inputs.x, token);
    SplitA a;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = token + i / 2 * 8 + lane % 4 * 2;
      const float2 value = unpack<T>(x.r[i]);
      split<T>(a.high.r[i], a.low.r[i], chunk.write[first] * value.x,
               chunk.write[first + 1] * value.y);
    }
    return a;
  }
};

// Grid (rows, heads, requests with a chunk).
template <class T, class State>
__global__ void __launch_bounds__(kScanThreads)
    scan_chunks_kernel(const __grid_constant__ ScanChunkParams<T, State> p) {
  release_next_kernel();
  await_previous_kernel();
  DYN_SHARED(memory, ScanMemory<T>);
  const int head = static_cast<int>(blockIdx.y);
  const int request = find_request(p.steps, p.num_requests, static_cast<int>(blockIdx.z));
  if (request < 0) return;
  const StateStep step = p.steps(request);
  const int num_chunks = tokens_in_chunks(step) / kChunk;
  const bool has_state = threadIdx.x < kRowWarps * 32;

  const auto first_of = [&](int chunk) { return step.first + chunk * kChunk; };
  const auto in_block = [&](int block) -> StatePlace<State> {
    const int first = static_cast<int>(blockIdx.x) * kRows;
    return {&p.state(block, head, first, 0), p.state.stride[2], p.state.stride[3],
            p.head_dim - first, p.state_dim};
  };
  ScanPreparation<T> preparation;
  ScanState<T> state;
  copy_inputs(p, memory->inputs[0], step.first, head);
  async_copy_commit();
  if (!has_state) {
    preparation.load_steps(p, step.first, head);
  } else if (step.read >= 0) {
    state.load(in_block(step.read));
  }
  for (int chunk = -1; chunk < num_chunks; ++chunk) {
    const int next = chunk + 1;
    async_copy_wait<0>();
    __syncthreads();  // the next chunk is there, this one's matrices are, the one before is used
    if (chunk + 2 < num_chunks) {
      copy_inputs(p, memory->inputs[(chunk + 2) % 3], first_of(chunk + 2), head);
      async_copy_commit();
    }
    if (has_state && chunk >= 0)
      state.pass(p, memory->inputs[chunk % 3], memory->matrices[chunk % 2], first_of(chunk), head);
    if (!has_state && next < num_chunks) {
      ScanMatrices<T>& then = memory->matrices[next % 2];
      ScanScratch& scratch = memory->scratch[preparation.warp];
      preparation.sum_up(p, scratch, then, head);
      if (next + 1 < num_chunks) preparation.load_steps(p, first_of(next + 1), head);
      preparation.compare(memory->inputs[next % 3], scratch, then, p.d_skip[head]);
    }
  }
  if (has_state) state.save(in_block(step.write));
}

template <class T>
bool launch_if_fits(const ScanArgs& args, StreamRef stream) {
  if (sizeof(ScanMemory<T>) > shared_memory_limit()) return false;
  dispatch_device_float(args.state.dtype(), [&]<class State>(Type<State>) {
    const ScanChunkParams<T, State> p(args);
    const std::int64_t requests = args.state_read.extent(0), tokens = args.x.extent(0);
    CUDA_CHECK(launch(scan_chunks_kernel<T, State>,
                      p.grid(kRows, std::min(requests, tokens / kChunk)), dim3(kScanThreads),
                      sizeof(ScanMemory<T>), native(stream), p));
  });
  return true;
}

}  // namespace

bool selective_scan_chunks(const ScanArgs& args, StreamRef stream) {
  const DType dtype = args.x.dtype();
  const bool same = args.b.dtype() == dtype && args.c.dtype() == dtype;
  const bool aligned = is_aligned(args.x) && is_aligned(args.b) && is_aligned(args.c);
  if (!same || !aligned || !suits_chunks({dtype, args.b.extent(2), args.x.extent(2)})) return false;
  if (args.max_query_len < kChunk || args.x.extent(0) < kChunk) return false;
  return dtype == DType::bf16 ? launch_if_fits<__nv_bfloat16>(args, stream)
                              : launch_if_fits<__half>(args, stream);
}

}  // namespace quire::cuda
