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

// The request that is the index-th to have a whole chunk, or −1.
template <class T, class State>
__device__ __forceinline__ int find_request(const ChunkParams<T, State>& p, int index) {
  const int lane = threadIdx.x % 32;
  for (int first = 0; first < p.num_requests; first += 32) {
    const int request = first + lane;
    const bool has_chunk = request < p.num_requests && tokens_in_chunks(p.steps(request)) > 0;
    const unsigned having = __ballot_sync(0xffffffffu, has_chunk);
    const int before = __popc(having & ((1u << lane) - 1));
    const unsigned found = __ballot_sync(0xffffffffu, has_chunk && before == index);
    if (found != 0) return first + __ffs(static_cast<int>(found)) - 1;
    index -= __popc(having);
  }
  return -1;
}

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

// A warp's columns of the state as rows of a product, and what goes through the chunk with them.
template <class T>
struct ChunkState {
  FragmentC s[kChunkKeyDim / 8] = {};
  FragmentC read[kChunk / 8], written[kChunk / 8];  // K · S, then what is new in V; X
  int column, lane;                                 // of the block; of the warp

  __device__ __forceinline__ ChunkState()
      : column(static_cast<int>(threadIdx.x) / 32 * kWarpColumns),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  // f(element, key, column of the state) of what there is.
  template <class State, class Apply>
  __device__ __forceinline__ void for_each(const ChunkParams<T, State>& p, const Apply& f) {
#pragma unroll
    for (int n = 0; n < kChunkKeyDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = n * 8 + lane % 4 * 2 + i % 2;
        const int value = static_cast<int>(blockIdx.x) * kColumns + column + lane / 4 + i / 2 * 8;
        if (key < p.key_dim && value < p.value_dim) f(s[n].r[i], key, value);
      }
    }
  }

  // Sᵀ · rowsᵀ.
  __device__ __forceinline__ void multiply_keys(FragmentC (&to)[kChunk / 8],
                                                const T (*rows)[kKeyStride]) {
#pragma unroll
    for (auto& tile : to) tile = {};
#pragma unroll
    for (int d = 0; d < kChunkKeyDim / 16; ++d) {
      FragmentB keys[kChunk / 8];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        load_by_columns(&keys[2 * block], rows, block * 16, d * 16);
      mma_tiles<T>(to, split_sums<T>(s[2 * d], s[2 * d + 1]), keys);
    }
  }

  // to += from · matrixᵀ, of a lower triangle of blocks.
  static __device__ __forceinline__ void multiply_tokens(FragmentC (&to)[kChunk / 8],
                                                         const FragmentC (&from)[kChunk / 8],
                                                         const SplitMatrix<T>& matrix) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const SplitA left = split_sums<T>(from[2 * j], from[2 * j + 1]);
#pragma unroll
      for (int i = j; i < kBlocks; ++i) {
        SplitB b[2];
        matrix.by_columns(b, i * 16, j * 16);
        mma_tiles<T>(&to[2 * i], left, b);
      }
    }
  }

  // Scales every token's column.
  __device__ __forceinline__ void scale(FragmentC (&tiles)[kChunk / 8], const float* by) {
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      const float first = by[n * 8 + lane % 4 * 2], second = by[n * 8 + lane % 4 * 2 + 1];
      tiles[n].r[0] *= first;
      tiles[n].r[1] *= second;
      tiles[n].r[2] *= first;
      tiles[n].r[3] *= second;
    }
  }

  __device__ __forceinline__ void recall(const ChunkInputs<T>& inputs) {
    multiply_keys(read, inputs.k);
  }

  // What the tokens write, and what they find.
  template <class State>
  __device__ __forceinline__ void answer(const ChunkParams<T, State>& p,
                                         const ChunkInputs<T>& inputs,
                                         const ChunkMatrices<T>& chunk, int token, int head) {
    scale(read, chunk.recall);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      std::uint32_t values[4];
      load_matrices_transposed(
          values, &inputs.v[block * 16 + lane / 16 * 8 + lane % 8][column + lane / 8 % 2 * 8]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = 2 * block + i / 2, first = n * 8 + lane % 4 * 2;
        const float2 value = unpack<T>(values[i]);
        float* const r = &read[n].r[i % 2 * 2];
        r[0] = fmaf(chunk.beta[first], value.x, -r[0]);
        r[1] = fmaf(chunk.beta[first + 1], value.y, -r[1]);
      }
    }
#pragma unroll
    for (auto& tile : written) tile = {};
    multiply_tokens(written, read, chunk.inverse);
    FragmentC out[kChunk / 8];
    multiply_keys(out, inputs.q);
    scale(out, chunk.answer);
    multiply_tokens(out, written, chunk.scores);
    if (p.out.dtype == DType::f32) {
      store<float>(out, p, token, head);
    } else {
      store<T>(out, p, token, head);
    }
  }

  __device__ __forceinline__ void advance(const ChunkInputs<T>& inputs,
                                          const ChunkMatrices<T>& chunk) {
    scale(written, chunk.write);
    const float decay = chunk.decay;
#pragma unroll
    for (auto& tile : s) {
#pragma unroll
      for (float& value : tile.r) value *= decay;
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const SplitA left = split_sums<T>(written[2 * j], written[2 * j + 1]);
#pragma unroll
      for (int d = 0; d < kChunkKeyDim; d += 64) {
        FragmentB keys[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) load_by_rows(&keys[2 * i], inputs.k, j * 16, d + i * 16);
        mma_tiles<T>(&s[d / 8], left, keys);
      }
    }
  }

  template <class Out, class State>
  __device__ __forceinline__ void store(const FragmentC (&out)[kChunk / 8],
                                        const ChunkParams<T, State>& p, int token, int head) {
    const int value = static_cast<int>(blockIdx.x) * kColumns + column + lane / 4;
    Out* to = static_cast<Out*>(p.out.data) + p.out.at(token + lane % 4 * 2, head, value);
    const std::int64_t next = p.out.stride[0], other = 8 * p.out.stride[2];
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (value < p.value_dim) {
        to[0] = Out(out[n].r[0]);
        to[next] = Out(out[n].r[1]);
      }
      if (value + 8 < p.value_dim) {
        to[other] = Out(out[n].r[2]);
        to[next + other] = Out(out[n].r[3]);
      }
      to += 8 * next;
    }
  }
};

// Grid (columns, value heads, requests with a chunk).
template <class T, class State>
__global__ void __launch_bounds__(kChunkThreads)
    delta_chunks_kernel(const __grid_constant__ ChunkParams<T, State> p) {
  DYN_SHARED(memory, ChunkMemory<T>);
  const int head = static_cast<int>(blockIdx.y);
  const int request = find_request(p, static_cast<int>(blockIdx.z));
  if (request < 0) return;
  const StateStep step = p.steps(request);
  const int num_chunks = tokens_in_chunks(step) / kChunk;
  const bool has_state = threadIdx.x < kColumnWarps * 32;

  const auto first_of = [&](int chunk) { return step.first + chunk * kChunk; };
  ChunkPreparation<T> preparation;
  ChunkState<T> state;
  copy_inputs(p, memory->inputs[0], step.first, head);
  async_copy_commit();
  if (!has_state) {
    preparation.load_gates(p, step.first, head);
  } else if (step.read >= 0) {
    state.for_each(p, [&](float& element, int key, int value) {
      element = static_cast<float>(p.state(step.read, head, key, value));
    });
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
  if (!has_state) return;
  state.for_each(p, [&](float& element, int key, int value) {
    p.state(step.write, head, key, value) = State(element);
  });
}

template <class T, class State>
void launch_chunks(const DeltaRuleArgs& args, StreamRef stream) {
  const std::int64_t heads = args.v.extent(1), value_dim = args.v.extent(2);
  const std::int64_t requests = args.state_read.extent(0), tokens = args.q.extent(0);
  const ChunkParams<T, State> p{.q = device_view<const T, 3>(args.q),
                                .k = device_view<const T, 3>(args.k),
                                .v = device_view<const T, 3>(args.v),
                                .out = AnyView(args.out),
                                .a = AnyView(args.a),
                                .b = AnyView(args.b),
                                .state = device_view<State, 4>(args.state),
                                .a_log = static_cast<const float*>(args.a_log.data()),
                                .dt_bias = static_cast<const float*>(args.dt_bias.data()),
                                .steps = StateSteps(args),
                                .num_requests = static_cast<int>(requests),
                                .heads_per_key = static_cast<int>(heads / args.q.extent(1)),
                                .key_dim = static_cast<int>(args.q.extent(2)),
                                .value_dim = static_cast<int>(value_dim)};
  const dim3 grid(static_cast<unsigned>((value_dim + kColumns - 1) / kColumns),
                  static_cast<unsigned>(heads),
                  static_cast<unsigned>(std::min(requests, tokens / kChunk)));
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
  const bool whole = args.q.extent(2) % 8 == 0 && args.v.extent(2) % 8 == 0;
  if (!same || !aligned || !whole || args.q.extent(2) > kChunkKeyDim) return false;
  if (args.max_query_len < kChunk || args.q.extent(0) < kChunk) return false;
  if (dtype == DType::bf16) return launch_if_fits<__nv_bfloat16>(args, stream);
  if (dtype == DType::f16) return launch_if_fits<__half>(args, stream);
  return false;
}

}  // namespace quire::cuda
