#pragma once
// A chunk of the gated delta rule: what it is made of, and what of it does not depend on the state.
// With g the sum of logarithms of decays from the chunk's first token on, K and Q normed:
//   L[i, j] = beta[i] · exp(g[i] − g[j]) · K[i] · K[j], j < i    (what i finds of what j wrote)
//   P[i, j] = exp(g[i] − g[j]) · Q[i] · K[j], j ≤ i
//   X = (I + L)⁻¹ · (beta · (V − exp(g) · K · S))                (what the tokens write)
//   out = exp(g) · Q · S + P · X;  S ← exp(g[last]) · S + (exp(g[last] − g) · K)ᵀ · X
// (Yang et al., Gated Delta Networks, arXiv 2412.06464). Products are of what was published in bf16
// or f16, which tensor cores multiply exactly; norms, gates and decays are applied to their float32
// sums, and what is multiplied once more is split in two.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/softplus.cuh"
#include "cuda/kernels/delta_heads.h"
#include "cuda/kernels/state_chunks.cuh"

namespace quire::cuda {
namespace {

constexpr int kChunkKeyDim = kLongestStateLine;
constexpr int kColumnWarps = 2, kPrepareWarps = 2;
constexpr int kChunkThreads = (kColumnWarps + kPrepareWarps) * 32;
constexpr int kColumns = kColumnWarps * kWarpLines;  // of the state
constexpr int kKeyStride = kChunkKeyDim + 8, kValueStride = kColumns + 8;

template <class T, class State>
struct ChunkParams : DeltaHeads<State> {
  View<const T, 3> q, k, v;

  explicit ChunkParams(const DeltaRuleArgs& args)
      : DeltaHeads<State>(args),
        q(device_view<const T, 3>(args.q)),
        k(device_view<const T, 3>(args.k)),
        v(device_view<const T, 3>(args.v)) {}
};

template <class T>
struct alignas(16) ChunkInputs {
  T q[kChunk][kKeyStride], k[kChunk][kKeyStride], v[kChunk][kValueStride];
};
// What the state's warps read. Only blocks on and below the diagonals are written.
template <class T>
struct ChunkMatrices {
  SplitMatrix<T> inverse, scores;  // (I + L)⁻¹, P
  float beta[kChunk];
  float recall[kChunk];  // of K · S, as published: beta · exp(g) · norm
  float answer[kChunk];  // of Q · S: exp(g) · norm
  float write[kChunk];   // of K into the state: exp(g[last] − g) · norm
  float decay;           // of the state: exp(g[last])
};
// Of the warps that prepare alone.
template <class T>
struct ChunkScratch {
  SplitMatrix<T> lower;             // L, but for its diagonal blocks
  float diagonal[kBlocks][16][20];  // these
  float log_decay[kChunk], q_norm[kChunk], k_norm[kChunk], beta[kChunk];
};
template <class T>
struct ChunkMemory {
  ChunkInputs<T> inputs[3];
  ChunkMatrices<T> matrices[2];
  ChunkScratch<T> scratch;
};

// One of two warps that make a chunk's matrices while the state's are busy with the one before:
// each has a short and a long block of rows.
template <class T>
struct ChunkPreparation {
  int warp, lane;
  float a[2] = {}, b = 0.f;  // of the next chunk: tokens lane and lane + 32; the own one

  __device__ __forceinline__ ChunkPreparation()
      : warp(static_cast<int>(threadIdx.x) / 32 - kColumnWarps),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  __device__ __forceinline__ int block_of_rows(int i) const {
    return i == 0 ? warp : kBlocks - 1 - warp;
  }

  template <class State>
  __device__ __forceinline__ void load_gates(const ChunkParams<T, State>& p, int token, int head) {
    a[0] = p.a.load(0, token + lane, head);
    a[1] = p.a.load(0, token + lane + 32, head);
    b = p.b.load(0, token + lane + 32 * warp, head);
  }

  // The token's norms and gates; every warp sums up all decays.
  template <class State>
  __device__ __forceinline__ void norm(const ChunkParams<T, State>& p, const ChunkInputs<T>& inputs,
                                       ChunkScratch<T>& scratch, ChunkMatrices<T>& to, int head) {
    const float rate = -expf(p.a_log[head]) * 1.44269504f, bias = p.dt_bias[head];
    float sum[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] = rate * softplus(a[i] + bias);
    const float last = sum_up_decays(sum, lane);
    const float own = warp == 0 ? sum[0] : sum[1];
    const int i = warp * 32 + lane;
    const float k_norm = rsqrtf(squares(inputs.k[i]) + kNormEps);
    const float q_norm =
        rsqrtf(squares(inputs.q[i]) + kNormEps) * rsqrtf(static_cast<float>(p.key_dim));
    const float beta = 1.f / (1.f + expf(-b)), decay = exp2_approximate(own);
    scratch.log_decay[i] = own;
    scratch.q_norm[i] = q_norm;
    scratch.k_norm[i] = k_norm;
    scratch.beta[i] = beta;
    to.beta[i] = beta;
    to.recall[i] = beta * decay * k_norm;
    to.answer[i] = decay * q_norm;
    to.write[i] = exp2_approximate(last - own) * k_norm;
    if (i == 0) to.decay = exp2_approximate(last);
  }

  static __device__ __forceinline__ float squares(const T (&row)[kKeyStride]) {
    float sum[4] = {};
#pragma unroll
    for (int c = 0; c < kChunkKeyDim; c += 8) {
      const uint4 words = *reinterpret_cast<const uint4*>(&row[c]);
      const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 x = unpack<T>(pairs[i]);
        sum[i] = fmaf(x.y, x.y, fmaf(x.x, x.x, sum[i]));
      }
    }
    return sum[0] + sum[1] + (sum[2] + sum[3]);
  }

  // L, P, and the inverses of the diagonal blocks of I + L.
  __device__ __forceinline__ void compare(const ChunkInputs<T>& inputs, ChunkScratch<T>& scratch,
                                          ChunkMatrices<T>& to) {
#pragma unroll 1
    for (int i = 0; i < 2; ++i) compare_rows(inputs, scratch, to, block_of_rows(i));
    __syncwarp();
    invert_diagonal(scratch, to, block_of_rows(lane / 16), lane % 16);
  }

  __device__ __forceinline__ void compare_rows(const ChunkInputs<T>& inputs,
                                               ChunkScratch<T>& scratch, ChunkMatrices<T>& to,
                                               int block) {
    FragmentC kk[2 * kBlocks] = {}, qk[2 * kBlocks] = {};
#pragma unroll
    for (int d = 0; d < kChunkKeyDim; d += 16) {
      const FragmentA k = load_left(inputs.k, block * 16, d),
                      q = load_left(inputs.q, block * 16, d);
#pragma unroll
      for (int other = 0; other < kBlocks; ++other) {
        if (other > block) break;
        FragmentB keys[2];
        load_by_columns(keys, inputs.k, other * 16, d);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          mma<T>(kk[2 * other + half], k, keys[half]);
          mma<T>(qk[2 * other + half], q, keys[half]);
        }
      }
    }
    const int row0 = block * 16 + lane / 4;
    const float log_decay[2] = {scratch.log_decay[row0], scratch.log_decay[row0 + 8]};
    const float q_norm[2] = {scratch.q_norm[row0], scratch.q_norm[row0 + 8]};
    const float write[2] = {scratch.beta[row0] * scratch.k_norm[row0],
                            scratch.beta[row0 + 8] * scratch.k_norm[row0 + 8]};
#pragma unroll
    for (int tile = 0; tile < 2 * kBlocks; ++tile) {
      if (tile / 2 > block) break;
      const int column = tile * 8 + lane % 4 * 2;
      const float2 decayed = *reinterpret_cast<const float2*>(&scratch.log_decay[column]);
      const float2 norm = *reinterpret_cast<const float2*>(&scratch.k_norm[column]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row0 + 8 * half;
        const float first = exp2_approximate(log_decay[half] - decayed.x) * norm.x;
        const float second = exp2_approximate(log_decay[half] - decayed.y) * norm.y;
        const float* const q = &qk[tile].r[2 * half];
        const float* const k = &kk[tile].r[2 * half];
        to.scores.store(row, column, column <= row ? q_norm[half] * first * q[0] : 0.f,
                        column < row ? q_norm[half] * second * q[1] : 0.f);
        const float lower[2] = {column < row ? write[half] * first * k[0] : 0.f,
                                column + 1 < row ? write[half] * second * k[1] : 0.f};
        if (tile / 2 < block) {
          scratch.lower.store(row, column, lower[0], lower[1]);
        } else {
          float* const at = &scratch.diagonal[block][row % 16][column % 16];
          at[0] = lower[0];
          at[1] = lower[1];
        }
      }
    }
  }

  // By substitution, a lane a column.
  static __device__ __forceinline__ void invert_diagonal(const ChunkScratch<T>& scratch,
                                                         ChunkMatrices<T>& to, int block,
                                                         int column) {
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      x[i] = i == column ? 1.f : 0.f;
#pragma unroll
      for (int k = 0; k < i; ++k) x[i] = fmaf(-scratch.diagonal[block][i][k], x[k], x[i]);
      const T high(x[i]);
      to.inverse.high[block * 16 + i][block * 16 + column] = high;
      to.inverse.low[block * 16 + i][block * 16 + column] = T(x[i] - static_cast<float>(high));
    }
  }

  // The inverse's other blocks, from the diagonal to the left: of block row i,
  // T[i, j] = −(Σ_k T[i, k] · L[k, j]) · T[j, j], j < k ≤ i.
  __device__ __forceinline__ void invert(const ChunkScratch<T>& scratch, ChunkMatrices<T>& to) {
    if (warp == 0) {
      invert_row<3>(scratch, to);
    } else {
      invert_row<1>(scratch, to);
      invert_row<2>(scratch, to);
    }
  }

  template <int kRow>
  __device__ __forceinline__ void invert_row(const ChunkScratch<T>& scratch, ChunkMatrices<T>& to) {
    SplitA done[kRow + 1];
    done[kRow] = to.inverse.left(kRow * 16, kRow * 16);
#pragma unroll
    for (int j = kRow - 1; j >= 0; --j) {
      FragmentC sum[2] = {}, block[2] = {};
      SplitB b[2];
#pragma unroll
      for (int k = kRow; k > j; --k) {
        scratch.lower.by_rows(b, k * 16, j * 16);
        mma_tiles<T>(sum, done[k], b);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[0].r[i] = -sum[0].r[i];
        sum[1].r[i] = -sum[1].r[i];
      }
      const SplitA left = split_sums<T>(sum[0], sum[1]);
      to.inverse.by_rows(b, j * 16, j * 16);
      mma_tiles<T>(block, left, b);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          to.inverse.store(kRow * 16 + lane / 4 + 8 * i, j * 16 + half * 8 + lane % 4 * 2,
                           block[half].r[2 * i], block[half].r[2 * i + 1]);
      }
      done[j] = split_sums<T>(block[0], block[1]);
    }
  }
};

}  // namespace
}  // namespace quire::cuda
