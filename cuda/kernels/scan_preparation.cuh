#pragma once
// Where a block has chunks of Mamba2's scan (scan_chunks.cu), and what of them does not depend on
// the state.

#include "cuda/kernels/scan_heads.h"
#include "cuda/kernels/state_chunks.cuh"

namespace quire::cuda {
namespace {

constexpr int kStateDim = kLongestStateLine;
constexpr int kRowWarps = 4, kPrepareWarps = kBlocks;
template <bool kAhead>
constexpr int kScanThreads = (kAhead ? kRowWarps + kPrepareWarps : kRowWarps) * 32;
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
// B and C arrive a chunk before they are compared, X while they are.
template <class T, bool kAhead>
struct ScanMemory {
  using Inputs = T[kChunk][kStateStride];
  using Rows = T[kChunk][kRowStride];
  static constexpr int kInputs = kAhead ? 3 : 2, kRowInputs = kAhead ? 2 : 1;
  alignas(16) Inputs inputs_b[kInputs], inputs_c[kInputs];
  alignas(16) Rows rows[kRowInputs];
  ScanMatrices<T> made[kRowInputs];
  ScanScratch scratch[kPrepareWarps];

  __device__ __forceinline__ Inputs& b(int chunk) { return inputs_b[chunk % kInputs]; }
  __device__ __forceinline__ Inputs& c(int chunk) { return inputs_c[chunk % kInputs]; }
  __device__ __forceinline__ Rows& x(int chunk) { return rows[chunk % kRowInputs]; }
  __device__ __forceinline__ ScanMatrices<T>& matrices(int chunk) {
    return made[chunk % kRowInputs];
  }
};

// One of the warps that make a chunk's matrices: it has sixteen rows of P.
template <class T, bool kAhead>
struct ScanPreparation {
  using Memory = ScanMemory<T, kAhead>;
  int warp, lane;
  float dt[2] = {};  // of the next chunk: tokens lane and lane + 32

  __device__ __forceinline__ ScanPreparation()
      : warp(static_cast<int>(threadIdx.x) / 32 - (kAhead ? kRowWarps : 0)),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  template <class State>
  __device__ __forceinline__ void load_steps(const ScanChunkParams<T, State>& p, int token,
                                             int head) {
    dt[0] = p.dt.load(0, token + lane, head);
    dt[1] = p.dt.load(0, token + lane + 32, head);
  }

  // Every warp sums up all decays, for itself.
  template <class State>
  __device__ __forceinline__ void sum_up(const ScanChunkParams<T, State>& p, Memory& memory,
                                         int chunk, int head) {
    ScanScratch& scratch = memory.scratch[warp];
    ScanMatrices<T>& to = memory.matrices(chunk);
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

  __device__ __forceinline__ void compare(Memory& memory, int chunk, float skip) {
    const ScanScratch& scratch = memory.scratch[warp];
    ScanMatrices<T>& to = memory.matrices(chunk);
    FragmentC cb[2 * kBlocks] = {};
#pragma unroll
    for (int n = 0; n < kStateDim; n += 16) {
      const FragmentA c = load_left(memory.c(chunk), warp * 16, n);
#pragma unroll
      for (int other = 0; other < kBlocks; ++other) {
        if (other > warp) break;
        FragmentB b[2];
        load_by_columns(b, memory.b(chunk), other * 16, n);
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

}  // namespace
}  // namespace quire::cuda
