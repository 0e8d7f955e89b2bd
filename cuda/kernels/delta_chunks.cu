// Gated delta rule in chunks of 64 tokens (delta_chunks.cuh). A block has 32 columns of one head's
// state of one request, which depend on no others. Two warps keep 16 of them each in registers, as
// float32 and transposed, so that their products' sums are the next ones' left operands; two others
// make the next chunk's matrices meanwhile, and the one after that is on its way. Bound by the
// chain of chunks. The bits of a chunk depend on nothing but its tokens and the state before it.

#include <algorithm>

#include "cuda/kernels/delta_chunks.cuh"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

template <class T, class State>
__device__ __forceinline__ void copy_inputs(const ChunkParams<T, State>& p, ChunkInputs<T>& to,
                                            int token, int head) {
  constexpr int kKeyChunks = kChunkKeyDim / 8, kValueChunks = kColumns / 8;
  constexpr int kKeyRows = kChunkThreads / kKeyChunks, kValueRows = kChunkThreads / kValueChunks;
  const int thread = static_cast<int>(threadIdx.x), key_head = head / p.heads_per_key;
  const int key_row = thread / kKeyChunks, d = thread % kKeyChunks * 8;
  const int value_row = thread / kValueChunks, column = thread % kValueChunks * 8;
  const int value = static_cast<int>(blockIdx.x) * kColumns + column;
  const int key_bytes = d < p.key_dim ? 16 : 0, value_bytes = value < p.value_dim ? 16 : 0;
  const T* q = &p.q(token + key_row, key_head, key_bytes > 0 ? d : 0);
  const T* k = &p.k(token + key_row, key_head, key_bytes > 0 ? d : 0);
  const T* v = &p.v(token + value_row, head, value_bytes > 0 ? value : 0);
#pragma unroll
  for (int i = 0; i < kChunk; i += kKeyRows) {
    async_copy<16>(&to.q[i + key_row][d], q, key_bytes);
    async_copy<16>(&to.k[i + key_row][d], k, key_bytes);
    q += kKeyRows * p.q.stride[0];
    k += kKeyRows * p.k.stride[0];
  }
#pragma unroll
  for (int i = 0; i < kChunk; i += kValueRows) {
    async_copy<16>(&to.v[i + value_row][column], v, value_bytes);
    v += kValueRows * p.v.stride[0];
  }
}

// A warp's columns of the state, and what goes through the chunk with them.
template <class T>
struct ChunkState : StateLines<T, kChunkKeyDim> {
  using Lines = StateLines<T, kChunkKeyDim>;
  using Lines::lane;
  typename Lines::OfTokens read, written;  // K · S, then what is new in V; X

  __device__ __forceinline__ void recall(const ChunkInputs<T>& inputs) {
    Lines::multiply(read, inputs.k);
  }

  // What the tokens write, and what they find.
  template <class State>
  __device__ __forceinline__ void answer(const ChunkParams<T, State>& p,
                                         const ChunkInputs<T>& inputs,
                                         const ChunkMatrices<T>& chunk, int token, int head) {
    Lines::scale(read, chunk.recall);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const FragmentA values = Lines::inputs(inputs.v, block * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = 2 * block + i / 2, first = n * 8 + lane % 4 * 2;
        const float2 value = unpack<T>(values.r[i]);
        float* const r = &read[n].r[i % 2 * 2];
        r[0] = fmaf(chunk.beta[first], value.x, -r[0]);
        r[1] = fmaf(chunk.beta[first + 1], value.y, -r[1]);
      }
    }
#pragma unroll
    for (auto& tile : written) tile = {};
    Lines::multiply_tokens(written, of_tokens(read), chunk.inverse);
    typename Lines::OfTokens out;
    Lines::multiply(out, inputs.q);
    Lines::scale(out, chunk.answer);
    Lines::multiply_tokens(out, of_tokens(written), chunk.scores);
    Lines::store(out, p.out, token, head, static_cast<int>(blockIdx.x) * kColumns, p.value_dim);
  }

  __device__ __forceinline__ void advance(const ChunkInputs<T>& inputs,
                                          const ChunkMatrices<T>& chunk) {
    Lines::scale(written, chunk.write);
    Lines::advance(chunk.decay, of_tokens(written), inputs.k);
  }

 private:
  static __device__ __forceinline__ auto of_tokens(const typename Lines::OfTokens& tiles) {
    return [&tiles](int j) { return split_sums<T>(tiles[2 * j], tiles[2 * j + 1]); };
  }
};

// Grid (columns, value heads, requests with a chunk).
template <class T, class State>
__global__ void __launch_bounds__(kChunkThreads)
    delta_chunks_kernel(const __grid_constant__ ChunkParams<T, State> p) {
  release_next_kernel();
  await_previous_kernel();
  DYN_SHARED(memory, ChunkMemory<T>);
  const int head = static_cast<int>(blockIdx.y);
  const int request = find_request(p.steps, p.num_requests, static_cast<int>(blockIdx.z));
  if (request < 0) return;
  const StateStep step = p.steps(request);
  const int num_chunks = tokens_in_chunks(step) / kChunk;
  const bool has_state = threadIdx.x < kColumnWarps * 32;

  const auto first_of = [&](int chunk) { return step.first + chunk * kChunk; };
  ChunkPreparation<T> preparation;
  ChunkState<T> state;
  const auto in_block = [&](int block) -> StatePlace<State> {
    const int first = static_cast<int>(blockIdx.x) * kColumns;
    return {&p.state(block, head, 0, first), p.state.stride[3], p.state.stride[2],
            p.value_dim - first, p.key_dim};
  };
  copy_inputs(p, memory->inputs[0], step.first, head);
  async_copy_commit();
  if (!has_state) {
    preparation.load_gates(p, step.first, head);
  } else if (step.read >= 0) {
    state.load(in_block(step.read));
  }
  for (int chunk = -1; chunk < num_chunks; ++chunk) {
    const int next = chunk + 1;
    const ChunkInputs<T>& now_inputs = memory->inputs[(chunk + 3) % 3];
    const ChunkInputs<T>& next_inputs = memory->inputs[next % 3];
    const ChunkMatrices<T>& now = memory->matrices[(chunk + 2) % 2];
    ChunkMatrices<T>& then = memory->matrices[next % 2];
    const bool computes = has_state && chunk >= 0, prepares = !has_state && next < num_chunks;
    async_copy_wait<0>();
    __syncthreads();  // the next chunk is there, this one's matrices are, the one before is used
    if (chunk + 2 < num_chunks) {
      copy_inputs(p, memory->inputs[(chunk + 2) % 3], first_of(chunk + 2), head);
      async_copy_commit();
    }
    if (computes) state.recall(now_inputs);
    if (prepares) {
      preparation.norm(p, next_inputs, memory->scratch, then, head);
      if (next + 1 < num_chunks) preparation.load_gates(p, first_of(next + 1), head);
    }
    __syncthreads();  // both warps' norms
    if (computes) state.answer(p, now_inputs, now, first_of(chunk), head);
    if (prepares) preparation.compare(next_inputs, memory->scratch, then);
    __syncthreads();  // both warps' rows
    if (computes) state.advance(now_inputs, now);
    if (prepares) preparation.invert(memory->scratch, then);
  }
  if (has_state) state.save(in_block(step.write));
}

template <class T, class State>
void launch_chunks(const DeltaRuleArgs& args, StreamRef stream) {
  const ChunkParams<T, State> p(args);
  const std::int64_t requests = args.state_read.extent(0), tokens = args.q.extent(0);
  const dim3 grid = p.grid(kColumns, std::min(requests, tokens / kChunk));
  CUDA_CHECK(launch(delta_chunks_kernel<T, State>, grid, dim3(kChunkThreads),
                    sizeof(ChunkMemory<T>), native(stream), p));
}

template <class T>
bool launch_if_fits(const DeltaRuleArgs& args, StreamRef stream) {
  if (sizeof(ChunkMemory<T>) > shared_memory_limit()) return false;
  dispatch_device_float(args.state.dtype(),
                        [&]<class State>(Type<State>) { launch_chunks<T, State>(args, stream); });
  return true;
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
