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

#include "cuda/kernels/delta_heads.h"
#include "cuda/kernels/state_chunks.cuh"

namespace quire::cuda {
namespace {

constexpr int kChunkKeyDim = kLongestStateLine;
constexpr int kKeyStride = kChunkKeyDim + 8;
constexpr int kChunkThreads = 128;

// A block's warps. Ahead, two have 16 columns of the state each and two others prepare; in turn,
// all four do both.
template <bool kAhead>
struct ChunkRoles {
  static constexpr int kStateWarps = kAhead ? 2 : 4, kPrepareWarps = kAhead ? 2 : 4;
  static constexpr int kFirstPreparing = kAhead ? kStateWarps : 0;
  static constexpr int kColumns = kStateWarps * kWarpLines, kValueStride = kColumns + 8;
};

template <class T, class State>
struct ChunkParams : DeltaHeads<State> {
  View<const T, 3> q, k, v;

  explicit ChunkParams(const DeltaRuleArgs& args)
      : DeltaHeads<State>(args),
        q(device_view<const T, 3>(args.q)),
        k(device_view<const T, 3>(args.k)),
        v(device_view<const T, 3>(args.v)) {}
};

// What the state's warps read. Only blocks on and below the diagonals are theirs: above the
// inverse's is what L has below its own, block (i, j) at (j, i), until it is inverted.
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
struct ChunkGates {
  float log_decay[kChunk], q_norm[kChunk], k_norm[kChunk];
};
using DiagonalBlocks = float[kBlocks][16][20];  // of L

// Ahead, the next chunk but one is on its way. In turn, keys are copied a chunk ahead, queries
// where the last were, once these have been answered, and values where the diagonal was inverted.
template <class T, bool kAhead>
struct ChunkMemory {
  using Keys = T[kChunk][kKeyStride];
  using Values = T[kChunk][ChunkRoles<kAhead>::kValueStride];
  struct Apart {
    Values values[3];
    DiagonalBlocks diagonal;
  };
  union InOnePlace {
    Values values[1];
    DiagonalBlocks diagonal;
  };
  static constexpr int kKeys = kAhead ? 3 : 2, kQueries = kAhead ? 3 : 1,
                       kMatrices = kAhead ? 2 : 1;
  alignas(16) Keys keys[kKeys], queries[kQueries];
  alignas(16) std::conditional_t<kAhead, Apart, InOnePlace> inner;
  ChunkMatrices<T> made[kMatrices];
  ChunkGates gates;

  __device__ __forceinline__ Keys& k(int chunk) { return keys[(chunk + kKeys) % kKeys]; }
  __device__ __forceinline__ Keys& q(int chunk) { return queries[(chunk + kQueries) % kQueries]; }
  __device__ __forceinline__ Values& v(int chunk) {
    return inner.values[(chunk + kQueries) % kQueries];
  }
  __device__ __forceinline__ ChunkMatrices<T>& matrices(int chunk) {
    return made[(chunk + kMatrices) % kMatrices];
  }
};

}  // namespace
}  // namespace quire::cuda
