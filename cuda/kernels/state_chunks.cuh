#pragma once
// What chunks of the delta rule and of Mamba2's scan share: whose chunks a block takes, decays
// summed up over a chunk, and lines of a state in the registers of a warp, which tensor cores
// multiply with what the tokens brought. Where a block may have the shared memory for it, it goes
// ahead: some warps make the next chunk's matrices while others take the state through the one
// before. Where it may not (99 KiB on Ada), the same warps do both in turn. The bits are the same.

#include "cuda/device/any_view.cuh"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/exp2.cuh"
#include "cuda/device/split_mma.cuh"
#include "cuda/kernels/state_chunks.h"

namespace quire::cuda {
namespace {

constexpr int kChunk = kStateChunk;
constexpr int kBlocks = kChunk / 16;  // of rows of a chunk's matrices
constexpr int kTokenStride = kChunk + 8;
constexpr int kWarpLines = 16;                               // of the state
constexpr std::size_t kLeastShared = std::size_t{99} << 10;  // of a block, on whatever has bf16

// Whether blocks that need a Memory to go ahead may have it.
template <class Memory>
bool goes_ahead() {
  return variants.chunks_ahead && sizeof(Memory) <= shared_memory_limit();
}

// The request that is the index-th to have a whole chunk, or −1.
__device__ __forceinline__ int find_request(const StateSteps& steps, int num_requests, int index) {
  const int lane = threadIdx.x % 32;
  for (int first = 0; first < num_requests; first += 32) {
    const int request = first + lane;
    const bool has_chunk = request < num_requests && tokens_in_chunks(steps(request)) > 0;
    const unsigned having = __ballot_sync(0xffffffffu, has_chunk);
    const int before = __popc(having & ((1u << lane) - 1));
    const unsigned found = __ballot_sync(0xffffffffu, has_chunk && before == index);
    if (found != 0) return first + __ffs(static_cast<int>(found)) - 1;
    index -= __popc(having);
  }
  return -1;
}

// Starts copies of a chunk's rows of a tensor [tokens, heads, length], from element `first` on;
// what is beyond the length becomes zero.
template <int kThreads, class T, int kStride>
__device__ __forceinline__ void copy_rows(T (&to)[kChunk][kStride], const View<const T, 3>& from,
                                          int token, int head, int first, int length) {
  constexpr int kPieces = (kStride - 8) / 8, kRows = kThreads / kPieces;
  const int row = static_cast<int>(threadIdx.x) / kPieces;
  const int column = static_cast<int>(threadIdx.x) % kPieces * 8;
  const int bytes = first + column < length ? 16 : 0;
  const T* source = &from(token + row, head, bytes > 0 ? first + column : 0);
#pragma unroll
  for (int i = 0; i < kChunk; i += kRows) {
    async_copy<16>(&to[i + row][column], source, bytes);
    source += kRows * from.stride[0];
  }
}

// Logarithms (to the base 2) of the decays of tokens lane and lane + 32, summed up from the chunk's
// first token on; returns the sum of all.
__device__ __forceinline__ float sum_up_decays(float (&sum)[2], int lane) {
#pragma unroll
  for (float& decays : sum) {
    constexpr float kLeast = -126.f;  // below it a decay is zero; differences stay numbers
    decays = decays < kLeast ? kLeast : decays;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, decays, lanes);
      if (lane >= lanes) decays += before;
    }
  }
  sum[1] += __shfl_sync(0xffffffffu, sum[0], 31);
  return __shfl_sync(0xffffffffu, sum[1], 31);
}

// A chunk's matrix [tokens, tokens] in shared memory.
template <class T>
struct alignas(16) SplitMatrix {
  T high[kChunk][kTokenStride], low[kChunk][kTokenStride];

  __device__ __forceinline__ void store(int row, int column, float a, float b) {
    split<T>(*reinterpret_cast<std::uint32_t*>(&high[row][column]),
             *reinterpret_cast<std::uint32_t*>(&low[row][column]), a, b);
  }
  __device__ __forceinline__ SplitA left(int row, int column) const {
    return {load_left(high, row, column), load_left(low, row, column)};
  }
  __device__ __forceinline__ void by_rows(SplitB* b, int row, int column) const {
    FragmentB part[2][2];
    load_by_rows(part[0], high, row, column);
    load_by_rows(part[1], low, row, column);
    b[0] = {part[0][0], part[1][0]};
    b[1] = {part[0][1], part[1][1]};
  }
  __device__ __forceinline__ void by_columns(SplitB* b, int row, int column) const {
    FragmentB part[2][2];
    load_by_columns(part[0], high, row, column);
    load_by_columns(part[1], low, row, column);
    b[0] = {part[0][0], part[1][0]};
    b[1] = {part[0][1], part[1][1]};
  }
};

// Where a block of threads finds its lines of a state in memory; a line has a multiple of eight
// elements.
template <class State>
struct StatePlace {
  State* first;
  std::int64_t line_stride, element_stride;
  int lines, length;

  __device__ __forceinline__ State* at(int line, int element) const {
    return first + line * line_stride + element * element_stride;
  }
};

// Sixteen lines of a head's state of one warp, as float32, so that sums of products are the next
// ones' left operands: columns of the delta rule's, rows of the scan's, which depend on no others.
// kLength: the longest line; what is beyond the real one stays zero.
template <class T, int kLength>
struct StateLines {
  static constexpr int kStride = kLength + 8;
  using OfTokens = FragmentC[kChunk / 8];  // [lines, tokens]
  FragmentC s[kLength / 8] = {};
  int line, lane;  // of the block; of the warp

  __device__ __forceinline__ StateLines()
      : line(static_cast<int>(threadIdx.x) / 32 * kWarpLines),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  template <class State>
  __device__ __forceinline__ void load(const StatePlace<State>& from) {
    const State* at[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = line + lane / 4 + 8 * half;  // one beyond the last takes part, unseen
      at[half] = from.at(own < from.lines ? own : from.lines - 1, lane % 4 * 2);
    }
#pragma unroll
    for (int n = 0; n < kLength / 8; ++n) {
      if (8 * n >= from.length) break;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s[n].r[i] = static_cast<float>(at[i / 2][i % 2 * from.element_stride]);
      at[0] += 8 * from.element_stride;
      at[1] += 8 * from.element_stride;
    }
  }
  template <class State>
  __device__ __forceinline__ void save(const StatePlace<State>& to) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = line + lane / 4 + 8 * half;
      if (own >= to.lines) break;
      State* at = to.at(own, lane % 4 * 2);
#pragma unroll
      for (int n = 0; n < kLength / 8; ++n) {
        if (8 * n >= to.length) break;
        at[0] = State(s[n].r[2 * half]);
        at[to.element_stride] = State(s[n].r[2 * half + 1]);
        at += 8 * to.element_stride;
      }
    }
  }

  // S · rowsᵀ.
  __device__ __forceinline__ void multiply(OfTokens& to, const T (*rows)[kStride]) const {
#pragma unroll
    for (auto& tile : to) tile = {};
#pragma unroll
    for (int d = 0; d < kLength / 16; ++d) {
      FragmentB right[kChunk / 8];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        load_by_columns(&right[2 * block], rows, block * 16, d * 16);
      mma_tiles<T>(to, split_sums<T>(s[2 * d], s[2 * d + 1]), right);
    }
  }

  // to += left · matrixᵀ, of a lower triangle of blocks. left(j): of tokens 16 j … 16 j + 15.
  template <class Left>
  static __device__ __forceinline__ void multiply_tokens(OfTokens& to, const Left& left,
                                                         const SplitMatrix<T>& matrix) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const auto tokens = left(j);
#pragma unroll
      for (int i = j; i < kBlocks; ++i) {
        SplitB b[2];
        matrix.by_columns(b, i * 16, j * 16);
        mma_tiles<T>(&to[2 * i], tokens, b);
      }
    }
  }

  // Scales what each token has.
  __device__ __forceinline__ void scale(OfTokens& tiles, const float* by) const {
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      const float first = by[n * 8 + lane % 4 * 2], second = by[n * 8 + lane % 4 * 2 + 1];
      tiles[n].r[0] *= first;
      tiles[n].r[1] *= second;
      tiles[n].r[2] *= first;
      tiles[n].r[3] *= second;
    }
  }

  // S ← decay · S + Σ_j left(j) · rows of tokens 16 j … 16 j + 15.
  template <class Left>
  __device__ __forceinline__ void advance(float decay, const Left& left, const T (*rows)[kStride]) {
#pragma unroll
    for (auto& tile : s) {
#pragma unroll
      for (float& value : tile.r) value *= decay;
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const SplitA tokens = left(j);
#pragma unroll
      for (int d = 0; d < kLength; d += 64) {
        FragmentB right[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) load_by_rows(&right[2 * i], rows, j * 16, d + i * 16);
        mma_tiles<T>(&s[d / 8], tokens, right);
      }
    }
  }

  // Sixteen tokens' inputs of the lines, from [tokens, lines] in shared memory, as a left operand.
  template <int kInputStride>
  __device__ __forceinline__ FragmentA inputs(const T (*rows)[kInputStride], int token) const {
    FragmentA a;
    load_matrices_transposed(a.r, &rows[token + lane / 16 * 8 + lane % 8][line + lane / 8 % 2 * 8]);
    return a;
  }

  // out[token …, head, line …] of num_lines, of which the block's begin at `first`.
  __device__ __forceinline__ void store(const OfTokens& results, const AnyView& out, int token,
                                        int head, int first, int num_lines) const {
    if (out.dtype == DType::f32) {
      store_as<float>(results, out, token, head, first, num_lines);
    } else {
      store_as<T>(results, out, token, head, first, num_lines);
    }
  }

 private:
  template <class Out>
  __device__ __forceinline__ void store_as(const OfTokens& results, const AnyView& out, int token,
                                           int head, int first, int num_lines) const {
    const int own = first + line + lane / 4;
    Out* to = static_cast<Out*>(out.data) + out.at(token + lane % 4 * 2, head, own);
    const std::int64_t next = out.stride[0], other = 8 * out.stride[2];
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (own < num_lines) {
        to[0] = Out(results[n].r[0]);
        to[next] = Out(results[n].r[1]);
      }
      if (own + 8 < num_lines) {
        to[other] = Out(results[n].r[2]);
        to[next + other] = Out(results[n].r[3]);
      }
      to += 8 * next;
    }
  }
};

}  // namespace
}  // namespace quire::cuda
