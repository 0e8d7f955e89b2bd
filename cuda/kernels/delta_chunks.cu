// Gated delta rule in chunks of 64 tokens (delta_chunks.cuh). A block has 32 columns of one head's
// state of one request, or in turn 64, which depend on no others. Warps keep 16 of them each in
// registers, as float32 and transposed, so that their products' sums are the next ones' left
// operands. Bound by the chain of chunks. The bits of a chunk depend on nothing but its tokens and
// the state before it.

#include <algorithm>

#include "cuda/kernels/delta_preparation.cuh"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

// A warp's columns of the state, and what goes through the chunk with them.
template <class T, bool kAhead>
struct ChunkState : StateLines<T, kChunkKeyDim> {
  using Memory = ChunkMemory<T, kAhead>;
  using Lines = StateLines<T, kChunkKeyDim>;
  using Lines::lane;
  typename Lines::OfTokens read, written;  // K · S, then what is new in V; X

  __device__ __forceinline__ void recall(Memory& memory, int chunk) {
    Lines::multiply(read, memory.k(chunk));
  }

  // What the tokens write, and what they find.
  template <class State>
  __device__ __forceinline__ void answer(const ChunkParams<T, State>& p, Memory& memory, int chunk,
                                         int token, int head) {
    const ChunkMatrices<T>& matrices = memory.matrices(chunk);
    Lines::scale(read, matrices.recall);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const FragmentA values = Lines::inputs(memory.v(chunk), block * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = 2 * block + i / 2, first = n * 8 + lane % 4 * 2;
        const float2 value = unpack<T>(values.r[i]);
        float* const r = &read[n].r[i % 2 * 2];
        r[0] = fmaf(matrices.beta[first], value.x, -r[0]);
        r[1] = fmaf(matrices.beta[first + 1], value.y, -r[1]);
      }
    }
#pragma unroll
    for (auto& tile : written) tile = {};
    Lines::multiply_tokens(written, of_tokens(read), matrices.inverse);
    typename Lines::OfTokens out;
    Lines::multiply(out, memory.q(chunk));
    Lines::scale(out, matrices.answer);
    Lines::multiply_tokens(out, of_tokens(written), matrices.scores);
    Lines::store(out, p.out, token, head,
                 static_cast<int>(blockIdx.x) * ChunkRoles<kAhead>::kColumns, p.value_dim);
  }

  __device__ __forceinline__ void advance(Memory& memory, int chunk) {
    const ChunkMatrices<T>& matrices = memory.matrices(chunk);
    Lines::scale(written, matrices.write);
    Lines::advance(matrices.decay, of_tokens(written), memory.k(chunk));
  }

 private:
  static __device__ __forceinline__ auto of_tokens(const typename Lines::OfTokens& tiles) {
    return [&tiles](int j) { return split_sums<T>(tiles[2 * j], tiles[2 * j + 1]); };
  }
};

// A block, and how it goes through the chunks of its request.
template <class T, class State, bool kAhead>
struct ChunkBlock {
  using Roles = ChunkRoles<kAhead>;
  const ChunkParams<T, State>& p;
  ChunkMemory<T, kAhead>& memory;
  StateStep step;
  int num_chunks = tokens_in_chunks(step) / kChunk;
  int head = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * Roles::kColumns;
  ChunkPreparation<T, kAhead> preparation;
  ChunkState<T, kAhead> state;

  __device__ __forceinline__ ChunkBlock(const ChunkParams<T, State>& params,
                                        ChunkMemory<T, kAhead>& shared, const StateStep& own)
      : p(params), memory(shared), step(own) {}

  static __device__ __forceinline__ bool has_state() {
    return !kAhead || threadIdx.x < Roles::kStateWarps * 32;
  }
  __device__ __forceinline__ int token(int chunk) const { return step.first + chunk * kChunk; }
  __device__ __forceinline__ StatePlace<State> in_block(int block) const {
    return {&p.state(block, head, 0, first), p.state.stride[3], p.state.stride[2],
            p.value_dim - first, p.key_dim};
  }

  __device__ __forceinline__ void copy_keys(int chunk) const {
    copy_rows<kChunkThreads>(memory.k(chunk), p.k, token(chunk), head / p.heads_per_key, 0,
                             p.key_dim);
  }
  __device__ __forceinline__ void copy_queries(int chunk) const {
    copy_rows<kChunkThreads>(memory.q(chunk), p.q, token(chunk), head / p.heads_per_key, 0,
                             p.key_dim);
  }
  __device__ __forceinline__ void copy_values(int chunk) const {
    copy_rows<kChunkThreads>(memory.v(chunk), p.v, token(chunk), head, first, p.value_dim);
  }

  __device__ __forceinline__ void begin() {
    copy_queries(0);
    copy_keys(0);
    if (kAhead) copy_values(0);
    async_copy_commit();
    if (!kAhead) preparation.load_gates(p, step.first, head);
    if (!has_state()) {
      preparation.load_gates(p, step.first, head);
    } else if (step.read >= 0) {
      state.load(in_block(step.read));
    }
  }
  __device__ __forceinline__ void norm(int chunk) {
    preparation.norm(p, memory, chunk, head);
    if (chunk + 1 < num_chunks) preparation.load_gates(p, token(chunk + 1), head);
  }

  __device__ __forceinline__ void go_ahead() {
    for (int chunk = -1; chunk < num_chunks; ++chunk) {
      const int next = chunk + 1;
      const bool computes = has_state() && chunk >= 0, makes = !has_state() && next < num_chunks;
      async_copy_wait<0>();
      __syncthreads();  // the next chunk is there, this one's matrices are, the one before is used
      if (chunk + 2 < num_chunks) {
        copy_queries(chunk + 2);
        copy_keys(chunk + 2);
        copy_values(chunk + 2);
        async_copy_commit();
      }
      if (computes) state.recall(memory, chunk);
      if (makes) norm(next);
      __syncthreads();  // both warps' norms
      if (computes) state.answer(p, memory, chunk, token(chunk), head);
      if (makes) preparation.compare(memory, next);
      __syncthreads();  // both warps' rows
      if (computes) state.advance(memory, chunk);
      if (makes) preparation.invert(memory.matrices(next).inverse);
    }
  }

  __device__ __forceinline__ void go_in_turn() {
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      const int next = chunk + 1;
      async_copy_wait<0>();
      __syncthreads();  // keys and queries are there, the chunk before has been written
      if (next < num_chunks) copy_keys(next);
      norm(chunk);
      __syncthreads();  // all norms
      preparation.compare(memory, chunk);
      __syncthreads();  // all rows; the diagonal has been inverted
      copy_values(chunk);
      async_copy_commit();
      preparation.invert(memory.matrices(chunk).inverse);
      async_copy_wait<0>();
      __syncthreads();  // values and the inverse are there
      state.recall(memory, chunk);
      state.answer(p, memory, chunk, token(chunk), head);
      __syncthreads();  // queries have been answered
      if (next < num_chunks) copy_queries(next);
      async_copy_commit();
      state.advance(memory, chunk);
    }
  }
};

// Grid (columns, value heads, requests with a chunk).
template <class T, class State, bool kAhead>
__global__ void __launch_bounds__(kChunkThreads)
    delta_chunks_kernel(const __grid_constant__ ChunkParams<T, State> p) {
  release_next_kernel();
  await_previous_kernel();
  DYN_SHARED(memory, ChunkMemory<T, kAhead>);
  const int request = find_request(p.steps, p.num_requests, static_cast<int>(blockIdx.z));
  if (request < 0) return;
  ChunkBlock<T, State, kAhead> block(p, *memory, p.steps(request));
  block.begin();
  if constexpr (kAhead) {
    block.go_ahead();
  } else {
    block.go_in_turn();
  }
  if (block.has_state()) block.state.save(block.in_block(block.step.write));
}

template <class T, class State, bool kAhead>
void launch_chunks(const DeltaRuleArgs& args, StreamRef stream) {
  const ChunkParams<T, State> p(args);
  const std::int64_t requests = args.state_read.extent(0), tokens = args.q.extent(0);
  const dim3 grid = p.grid(ChunkRoles<kAhead>::kColumns, std::min(requests, tokens / kChunk));
  CUDA_CHECK(launch(delta_chunks_kernel<T, State, kAhead>, grid, dim3(kChunkThreads),
                    sizeof(ChunkMemory<T, kAhead>), native(stream), p));
}

template <class T>
bool launch_if_fits(const DeltaRuleArgs& args, StreamRef stream) {
  static_assert(sizeof(ChunkMemory<T, false>) <= kLeastShared);
  const auto go = [&](auto ahead) {
    dispatch_device_float(args.state.dtype(), [&]<class State>(Type<State>) {
      launch_chunks<T, State, ahead.value>(args, stream);
    });
    return true;
  };
  if (goes_ahead<ChunkMemory<T, true>>()) return go(std::true_type());
  return sizeof(ChunkMemory<T, false>) <= shared_memory_limit() && go(std::false_type());
}

}  // namespace

bool delta_rule_chunks(const DeltaRuleArgs& args, StreamRef stream) {
  const DType dtype = args.q.dtype();
  const bool same = args.k.dtype() == dtype && args.v.dtype() == dtype;
  const bool aligned = is_aligned(args.q) && is_aligned(args.k) && is_aligned(args.v);
  if (!same || !aligned || !suits_chunks({dtype, args.q.extent(2), args.v.extent(2)})) return false;
  if (args.max_query_len < kChunk || args.q.extent(0) < kChunk) return false;
  return dtype == DType::bf16 ? launch_if_fits<__nv_bfloat16>(args, stream)
                              : launch_if_fits<__half>(args, stream);
}

}  // namespace quire::cuda
