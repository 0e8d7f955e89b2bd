#pragma once
// What of a chunk of the gated delta rule does not depend on the state (delta_chunks.cuh).

#include "cuda/device/softplus.cuh"
#include "cuda/kernels/delta_chunks.cuh"

namespace quire::cuda {
namespace {

// One of the warps that make a chunk's matrices. Of two, each has a short and a long block of rows;
// of four, two norm keys and two queries.
template <class T, bool kAhead>
struct ChunkPreparation {
  using Memory = ChunkMemory<T, kAhead>;
  static constexpr int kWarps = ChunkRoles<kAhead>::kPrepareWarps, kRowBlocks = kBlocks / kWarps;
  int warp, lane;
  float a[2] = {}, b = 0.f;  // of the next chunk: tokens lane and lane + 32; the own one

  __device__ __forceinline__ ChunkPreparation()
      : warp(static_cast<int>(threadIdx.x) / 32 - ChunkRoles<kAhead>::kFirstPreparing),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  // Of four, another one for each chunk: there are no registers to keep what would follow from it.
  __device__ __forceinline__ int block_of_rows(int i, int chunk) const {
    if (kRowBlocks == 1) return (warp + chunk) % kBlocks;
    return i == 0 ? warp : kBlocks - 1 - warp;
  }

  template <class State>
  __device__ __forceinline__ void load_gates(const ChunkParams<T, State>& p, int token, int head) {
    a[0] = p.a.load(0, token + lane, head);
    a[1] = p.a.load(0, token + lane + 32, head);
    b = p.b.load(0, token + warp % 2 * 32 + lane, head);
  }

  // The token's norms and gates; every warp sums up all decays.
  template <class State>
  __device__ __forceinline__ void norm(const ChunkParams<T, State>& p, Memory& memory, int chunk,
                                       int head) {
    const float rate = -expf(p.a_log[head]) * 1.44269504f, bias = p.dt_bias[head];
    float sum[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) sum[i] = rate * softplus(a[i] + bias);
    const float last = sum_up_decays(sum, lane);
    const float own = warp % 2 == 0 ? sum[0] : sum[1];
    const int i = warp % 2 * 32 + lane;
    ChunkMatrices<T>& to = memory.matrices(chunk);
    const float decay = exp2_approximate(own);
    if (kWarps == 2 || warp < 2) {
      const float k_norm = rsqrtf(squares(memory.k(chunk)[i]) + kNormEps);
      const float beta = 1.f / (1.f + expf(-b));
      memory.gates.log_decay[i] = own;
      memory.gates.k_norm[i] = k_norm;
      to.beta[i] = beta;
      to.recall[i] = beta * decay * k_norm;
      to.write[i] = exp2_approximate(last - own) * k_norm;
      if (i == 0) to.decay = exp2_approximate(last);
    }
    if (kWarps == 2 || warp >= 2) {
      const float q_norm =
          rsqrtf(squares(memory.q(chunk)[i]) + kNormEps) * rsqrtf(static_cast<float>(p.key_dim));
      memory.gates.q_norm[i] = q_norm;
      to.answer[i] = decay * q_norm;
    }
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
  __device__ __forceinline__ void compare(Memory& memory, int chunk) {
#pragma unroll 1
    for (int i = 0; i < kRowBlocks; ++i) compare_rows(memory, chunk, block_of_rows(i, chunk));
    __syncwarp();
    if (lane / 16 < kRowBlocks)
      invert_diagonal(memory, memory.matrices(chunk).inverse, block_of_rows(lane / 16, chunk),
                      lane % 16);
  }

  __device__ __forceinline__ void compare_rows(Memory& memory, int chunk, int block) {
    const T(&keys)[kChunk][kKeyStride] = memory.k(chunk);
    const T(&queries)[kChunk][kKeyStride] = memory.q(chunk);
    const ChunkGates& gates = memory.gates;
    ChunkMatrices<T>& to = memory.matrices(chunk);
    FragmentC kk[2 * kBlocks] = {}, qk[2 * kBlocks] = {};
#pragma unroll
    for (int d = 0; d < kChunkKeyDim; d += 16) {
      const FragmentA k = load_left(keys, block * 16, d), q = load_left(queries, block * 16, d);
#pragma unroll
      for (int other = 0; other < kBlocks; ++other) {
        if (other > block) break;
        FragmentB right[2];
        load_by_columns(right, keys, other * 16, d);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          mma<T>(kk[2 * other + half], k, right[half]);
          mma<T>(qk[2 * other + half], q, right[half]);
        }
      }
    }
    const int row0 = block * 16 + lane / 4;
    const float log_decay[2] = {gates.log_decay[row0], gates.log_decay[row0 + 8]};
    const float q_norm[2] = {gates.q_norm[row0], gates.q_norm[row0 + 8]};
    const float write[2] = {to.beta[row0] * gates.k_norm[row0],
                            to.beta[row0 + 8] * gates.k_norm[row0 + 8]};
#pragma unroll
    for (int tile = 0; tile < 2 * kBlocks; ++tile) {
      if (tile / 2 > block) break;
      const int column = tile * 8 + lane % 4 * 2;
      const float2 decayed = *reinterpret_cast<const float2*>(&gates.log_decay[column]);
      const float2 norm = *reinterpret_cast<const float2*>(&gates.k_norm[column]);
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
          to.inverse.store(tile / 2 * 16 + row % 16, block * 16 + column % 16, lower[0], lower[1]);
        } else {
          float* const at = &memory.inner.diagonal[block][row % 16][column % 16];
          at[0] = lower[0];
          at[1] = lower[1];
        }
      }
    }
  }

  // By substitution, a lane a column.
  static __device__ __forceinline__ void invert_diagonal(const Memory& memory, SplitMatrix<T>& to,
                                                         int block, int column) {
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      x[i] = i == column ? 1.f : 0.f;
#pragma unroll
      for (int k = 0; k < i; ++k) x[i] = fmaf(-memory.inner.diagonal[block][i][k], x[k], x[i]);
      const T high(x[i]);
      to.high[block * 16 + i][block * 16 + column] = high;
      to.low[block * 16 + i][block * 16 + column] = T(x[i] - static_cast<float>(high));
    }
  }

  // The inverse's other blocks, from the diagonal to the left: of block row i,
  // T[i, j] = −(Σ_k T[i, k] · L[k, j]) · T[j, j], j < k ≤ i.
  __device__ __forceinline__ void invert(SplitMatrix<T>& inverse) {
    if (warp == 0) {
      invert_row<3>(inverse);
    } else if (kWarps == 2 || warp == 1) {
      invert_row<1>(inverse);
      invert_row<2>(inverse);
    }
  }

  template <int kRow>
  __device__ __forceinline__ void invert_row(SplitMatrix<T>& inverse) {
    SplitA done[kRow + 1];
    done[kRow] = inverse.left(kRow * 16, kRow * 16);
#pragma unroll
    for (int j = kRow - 1; j >= 0; --j) {
      FragmentC sum[2] = {}, block[2] = {};
      SplitB b[2];
#pragma unroll
      for (int k = kRow; k > j; --k) {
        inverse.by_rows(b, j * 16, k * 16);  // L[k, j]
        mma_tiles<T>(sum, done[k], b);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[0].r[i] = -sum[0].r[i];
        sum[1].r[i] = -sum[1].r[i];
      }
      const SplitA left = split_sums<T>(sum[0], sum[1]);
      inverse.by_rows(b, j * 16, j * 16);
      mma_tiles<T>(block, left, b);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          inverse.store(kRow * 16 + lane / 4 + 8 * i, j * 16 + half * 8 + lane % 4 * 2,
                        block[half].r[2 * i], block[half].r[2 * i + 1]);
      }
      done[j] = split_sums<T>(block[0], block[1]);
    }
  }
};

}  // namespace
}  // namespace quire::cuda
