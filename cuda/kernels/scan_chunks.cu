// Mamba2's scan in chunks of 64 tokens. With g the sum of logarithms of decays from the chunk's
// first token on, d the discretised dt:
//   P[i, j] = exp(g[i] − g[j]) · d[j] · C[i] · B[j] + (i = j: d_skip), j ≤ i
//   out = exp(g) · C · Sᵀ + P · X;  S ← exp(g[last]) · S + (exp(g[last] − g) · d · X)ᵀ · B
// (Dao and Gu, Transformers are SSMs, arXiv 2405.21060). Products are of what was published in bf16
// or f16, which tensor cores multiply exactly; what is multiplied once more is split in two. A
// block has 64 rows of one head's state of one request. Four warps keep sixteen of them each in
// registers, as float32; ahead, four others make the next chunk's P meanwhile, and the inputs of
// the one after that are on their way. Bound by the chain of chunks. The bits of a chunk depend on
// nothing but its tokens and the state before it.

#include <algorithm>

#include "cuda/kernels/scan_preparation.cuh"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

// A warp's rows of the state.
template <class T, bool kAhead>
struct ScanState : StateLines<T, kStateDim> {
  using Memory = ScanMemory<T, kAhead>;
  using Lines = StateLines<T, kStateDim>;
  using Lines::lane;

  template <class State>
  __device__ __forceinline__ void pass(const ScanChunkParams<T, State>& p, Memory& memory,
                                       int chunk, int token, int head) {
    const ScanMatrices<T>& matrices = memory.matrices(chunk);
    const auto& x = memory.x(chunk);
    typename Lines::OfTokens out;
    Lines::multiply(out, memory.c(chunk));
    Lines::scale(out, matrices.answer);
    Lines::multiply_tokens(
        out, [&](int j) { return Lines::inputs(x, j * 16); }, matrices.scores);
    Lines::store(out, p.out, token, head, static_cast<int>(blockIdx.x) * kRows, p.head_dim);
    Lines::advance(
        matrices.decay, [&](int j) { return written(Lines::inputs(x, j * 16), matrices, j * 16); },
        memory.b(chunk));
  }

 private:
  // What sixteen tokens write.
  __device__ __forceinline__ SplitA written(const FragmentA& x, const ScanMatrices<T>& chunk,
                                            int token) const {
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

// A block, and how it goes through the chunks of its request.
template <class T, class State, bool kAhead>
struct ScanBlock {
  static constexpr int kThreads = kScanThreads<kAhead>;
  const ScanChunkParams<T, State>& p;
  ScanMemory<T, kAhead>& memory;
  StateStep step;
  int num_chunks = tokens_in_chunks(step) / kChunk;
  int head = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * kRows;
  ScanPreparation<T, kAhead> preparation;
  ScanState<T, kAhead> state;

  __device__ __forceinline__ ScanBlock(const ScanChunkParams<T, State>& params,
                                       ScanMemory<T, kAhead>& shared, const StateStep& own)
      : p(params), memory(shared), step(own) {}

  static __device__ __forceinline__ bool has_state() {
    return !kAhead || threadIdx.x < kRowWarps * 32;
  }
  __device__ __forceinline__ int token(int chunk) const { return step.first + chunk * kChunk; }
  __device__ __forceinline__ StatePlace<State> in_block(int block) const {
    return {&p.state(block, head, first, 0), p.state.stride[2], p.state.stride[3],
            p.head_dim - first, p.state_dim};
  }

  __device__ __forceinline__ void copy_inputs(int chunk) const {
    const int group = head / p.heads_per_group;
    copy_rows<kThreads>(memory.b(chunk), p.b, token(chunk), group, 0, p.state_dim);
    copy_rows<kThreads>(memory.c(chunk), p.c, token(chunk), group, 0, p.state_dim);
  }
  __device__ __forceinline__ void copy_x(int chunk) const {
    copy_rows<kThreads>(memory.x(chunk), p.x, token(chunk), head, first, p.head_dim);
  }

  __device__ __forceinline__ void begin() {
    copy_inputs(0);
    async_copy_commit();
    if (!kAhead) preparation.load_steps(p, step.first, head);
    if (!has_state()) {
      preparation.load_steps(p, step.first, head);
    } else if (step.read >= 0) {
      state.load(in_block(step.read));
    }
  }
  __device__ __forceinline__ void prepare(int chunk) {
    preparation.sum_up(p, memory, chunk, head);
    if (chunk + 1 < num_chunks) preparation.load_steps(p, token(chunk + 1), head);
    preparation.compare(memory, chunk, p.d_skip[head]);
  }

  __device__ __forceinline__ void go_ahead() {
    for (int chunk = -1; chunk < num_chunks; ++chunk) {
      const int next = chunk + 1;
      async_copy_wait<0>();
      __syncthreads();  // the next chunk is there, this one's matrices are, the one before is used
      if (next + 1 < num_chunks) copy_inputs(next + 1);
      if (next < num_chunks) copy_x(next);
      async_copy_commit();
      if (has_state() && chunk >= 0) state.pass(p, memory, chunk, token(chunk), head);
      if (!has_state() && next < num_chunks) prepare(next);
    }
  }

  __device__ __forceinline__ void go_in_turn() {
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      async_copy_wait<0>();
      __syncthreads();  // B and C are there, the chunk before is used
      if (chunk + 1 < num_chunks) copy_inputs(chunk + 1);
      copy_x(chunk);
      async_copy_commit();
      prepare(chunk);
      async_copy_wait<0>();
      __syncthreads();  // X and the matrices are there
      state.pass(p, memory, chunk, token(chunk), head);
    }
  }
};

// Grid (rows, heads, requests with a chunk).
template <class T, class State, bool kAhead>
__global__ void __launch_bounds__(kScanThreads<kAhead>)
    scan_chunks_kernel(const __grid_constant__ ScanChunkParams<T, State> p) {
  release_next_kernel();
  await_previous_kernel();
  DYN_SHARED(memory, ScanMemory<T, kAhead>);
  const int request = find_request(p.steps, p.num_requests, static_cast<int>(blockIdx.z));
  if (request < 0) return;
  ScanBlock<T, State, kAhead> block(p, *memory, p.steps(request));
  block.begin();
  if constexpr (kAhead) {
    block.go_ahead();
  } else {
    block.go_in_turn();
  }
  if (block.has_state()) block.state.save(block.in_block(block.step.write));
}

template <class T, class State, bool kAhead>
void launch_chunks(const ScanArgs& args, StreamRef stream) {
  const ScanChunkParams<T, State> p(args);
  const std::int64_t requests = args.state_read.extent(0), tokens = args.x.extent(0);
  const dim3 grid = p.grid(kRows, std::min(requests, tokens / kChunk));
  CUDA_CHECK(launch(scan_chunks_kernel<T, State, kAhead>, grid, dim3(kScanThreads<kAhead>),
                    sizeof(ScanMemory<T, kAhead>), native(stream), p));
}

template <class T>
bool launch_if_fits(const ScanArgs& args, StreamRef stream) {
  static_assert(sizeof(ScanMemory<T, false>) <= kLeastShared);
  const auto go = [&](auto ahead) {
    dispatch_device_float(args.state.dtype(), [&]<class State>(Type<State>) {
      launch_chunks<T, State, ahead.value>(args, stream);
    });
    return true;
  };
  if (goes_ahead<ScanMemory<T, true>>()) return go(std::true_type());
  return sizeof(ScanMemory<T, false>) <= shared_memory_limit() && go(std::false_type());
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
