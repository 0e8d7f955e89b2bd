#pragma once
// One warpgroup's work on a tile of keys: scores, online softmax, weighted values, with Hopper's
// warpgroup products. Fragments as in cuda/device/warpgroup.cuh.

#include "cuda/device/exp2.cuh"
#include "cuda/device/roles.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/typed_mma.cuh"
#include "cuda/device/warpgroup.cuh"
#include "cuda/kernels/paged_args.cuh"
#include "cuda/runtime/tensor_map.h"

namespace quire::cuda {

// Warpgroups that attend, 64 rows each, and one more, whose first warp brings tiles; and the
// registers of their threads, of which a multiprocessor has 65,536.
constexpr int kGroups = 2, kGroupThreads = 128, kGroupRows = 64;
constexpr int kAttending = kGroups * kGroupThreads, kThreads = kAttending + kGroupThreads;
constexpr int kBlockRows = kGroups * kGroupRows, kTileKeys = 128;
constexpr int kRegistersOfAttending = 240, kRegistersOfBringing = 24;
constexpr int kStages = 3;      // tiles of K and of V in shared memory
constexpr int kPanelDims = 64;  // elements in 128 bytes
constexpr float kLog2e = 1.44269504f, kMostGrowth = 8.f;

template <class T>
struct WgmmaArgs : PagedArgs<T, T> {
  CUtensorMap k_map, v_map;  // boxes of box_keys tokens of a page, 64 elements wide
  int box_keys;
  int least_rows;
  float to_exponent;  // 2 log2(e) times what tanh takes of a score; 0: no soft cap
  float to_log2;      // what comes then, times this, is a logarithm to base 2

  WgmmaArgs(const AttentionArgs& args, int least)
      : PagedArgs<T, T>(args),
        box_keys(box_of(args.k_cache)),
        least_rows(least),
        to_exponent(args.soft_cap > 0.f ? 2.f * kLog2e * args.scale / args.soft_cap : 0.f),
        to_log2((args.soft_cap > 0.f ? args.soft_cap : args.scale) * kLog2e) {
    k_map = tensor_map(args.k_cache, {1, box_keys, 1, kPanelDims});
    v_map = tensor_map(args.v_cache, {1, box_keys, 1, kPanelDims});
  }

  // Keys that lie in one page wherever a tile begins: a power of two.
  static int box_of(const TensorView& cache) {
    const auto size = static_cast<int>(cache.extent(1));
    return std::min(kTileKeys, size & -size);
  }
  __device__ __forceinline__ int seen_from(int position) const {
    return this->window > 0 ? ::max(0, position - this->window + 1) : 0;
  }
};

// Of a row; what is beyond kDim, with heads of 96, comes as zeros.
template <int kDim>
constexpr int kPanels = (kDim + kPanelDims - 1) / kPanelDims;
template <class T, int kDim>
struct alignas(1024) SwizzledTile {
  static constexpr int kPanelBytes = kTileKeys * kPanelDims * static_cast<int>(sizeof(T));
  T panel[kPanels<kDim>][kTileKeys][kPanelDims];
};
// Of a ring of tiles: boxes fill it, every warp that attends empties it.
struct RingBarriers {
  Mbarrier full[kStages], empty[kStages];
};
template <class T, int kDim>
struct Stages {
  SwizzledTile<T, kDim> k[kStages], v[kStages];
  RingBarriers k_ready, v_ready;
};
// A place in a ring, and how often around, modulo two.
struct Turn {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Request {
  int first_token, num_tokens, num_rows, seq_len;
  __device__ __forceinline__ int position(int row, int group) const {
    return seq_len - num_tokens + ::min(row, num_rows - 1) / group;
  }
};

// A warpgroup's 64 rows: a lane has columns 2·(lane%4) of its warp's rows lane/4 and lane/4 + 8.
// Maxima and scores are in units of log 2.
template <class T, int kDim>
struct GroupRows {
  FragmentA q[kDim / 16];
  FragmentC scores[kTileKeys / 8];
  FragmentA weights[kTileKeys / 16];
  FragmentC values[kPanels<kDim> * kPanelDims / 8];
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
  int first[2], last[2];  // keys that the rows see; none: first > last

  __device__ __forceinline__ void load(const WgmmaArgs<T>& a, const Request& r, int kv_head,
                                       int row0) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (FragmentC& v : values) v = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row =
          row0 + static_cast<int>(threadIdx.x) % kGroupThreads / 32 * 16 + lane / 4 + 8 * h;
      const bool in_range = row < r.num_rows;
      const int token = in_range ? row / a.group : 0, head = in_range ? row - token * a.group : 0;
      const int position = r.seq_len - r.num_tokens + token;
      first[h] = in_range ? a.seen_from(position) : 1;
      last[h] = in_range ? position : 0;
      const T* from = &a.q(r.first_token + token, kv_head * a.group + head, lane % 4 * 2);
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        q[d].r[h] = in_range ? *reinterpret_cast<const std::uint32_t*>(from + d * 16) : 0u;
        q[d].r[2 + h] = in_range ? *reinterpret_cast<const std::uint32_t*>(from + d * 16 + 8) : 0u;
      }
    }
  }

  __device__ __forceinline__ void begin_scores(const SwizzledTile<T, kDim>& k) {
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      const SharedMatrix b = shared_matrix(&k.panel[d / 4]).advanced(d % 4 * 32);
      warpgroup_mma<T, Major::k>(scores, q[d], b, d > 0);
    }
    warpgroup_commit();
  }
  __device__ __forceinline__ void begin_values(const SwizzledTile<T, kDim>& v) {
    const SharedMatrix b = shared_matrix(&v, SwizzledTile<T, kDim>::kPanelBytes);
#pragma unroll
    for (int n = 0; n < kTileKeys / 16; ++n)
      warpgroup_mma<T, Major::n>(values, weights[n], b.advanced(n * 2048), true);
    warpgroup_commit();
  }

  // tanh(x) = 1 − 2 / (1 + e^2x)
  __device__ __forceinline__ void cap(float to_exponent) {
#pragma unroll
    for (FragmentC& c : scores) {
#pragma unroll
      for (float& s : c.r) s = 1.f - __fdividef(2.f, 1.f + exp2_approximate(s * to_exponent));
    }
  }

  // Scores become weights in float32 and are summed; rescale: by what the values so far are to be
  // multiplied. kAll: every row sees every key of the tile.
  template <bool kAll>
  __device__ __forceinline__ void weigh_rows(int key0, float to_log2, float (&rescale)[2]) {
    const int column = key0 + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float tops[2] = {-INFINITY, -INFINITY}, totals[2] = {0.f, 0.f};  // shorter chains
#pragma unroll
      for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores[n].r[2 * h + i];
          const int key = column + n * 8 + i;
          if (!kAll && (key < first[h] || key > last[h])) s = -INFINITY;
          tops[i] = fmaxf(tops[i], s);
        }
      }
      float top = fmaxf(tops[0], tops[1]);
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)) * to_log2;
      // What weights are relative to follows the maximum only where they would grow beyond 2^8:
      // after the first tile that is rare, and then nothing is rescaled.
      top = top > max[h] + kMostGrowth ? top : max[h];
      const float base = top == -INFINITY ? 0.f : top;  // no key yet: weights are 0, not NaN
      rescale[h] = exp2_approximate(max[h] - base);
#pragma unroll
      for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores[n].r[2 * h + i];
          s = exp2_approximate(__fmaf_rn(s, to_log2, -base));
          totals[i] += s;
        }
      }
      sum[h] = sum[h] * rescale[h] + (totals[0] + totals[1]);  // of this lane's columns
      max[h] = top;
    }
  }

  __device__ __forceinline__ void weigh(const WgmmaArgs<T>& a, int key0, bool all,
                                        float (&rescale)[2]) {
    if (a.to_exponent > 0.f) cap(a.to_exponent);
    if (all) return weigh_rows<true>(key0, a.to_log2, rescale);
    weigh_rows<false>(key0, a.to_log2, rescale);
  }

  __device__ __forceinline__ void pack_weights(const float (&rescale)[2]) {
    if (__any_sync(0xffffffffu, rescale[0] != 1.f || rescale[1] != 1.f)) {
#pragma unroll
      for (FragmentC& v : values) {
#pragma unroll
        for (int i = 0; i < 4; ++i) v.r[i] *= rescale[i / 2];
      }
    }
#pragma unroll
    for (int n = 0; n < kTileKeys / 16; ++n) {
      const FragmentC &low = scores[2 * n], &high = scores[2 * n + 1];
      weights[n] = {{pack<T>(low.r[0], low.r[1]), pack<T>(low.r[2], low.r[3]),
                     pack<T>(high.r[0], high.r[1]), pack<T>(high.r[2], high.r[3])}};
    }
  }

  __device__ __forceinline__ void store(const WgmmaArgs<T>& a, const Request& r, int kv_head,
                                        int row0) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
      sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
      const int row =
          row0 + static_cast<int>(threadIdx.x) % kGroupThreads / 32 * 16 + lane / 4 + 8 * h;
      if (row >= r.num_rows) continue;
      const int token = row / a.group, head = kv_head * a.group + row - token * a.group;
      float total = sum[h], kept = 1.f;
      if (a.sinks != nullptr) {
        const float sink = a.sinks[head] * kLog2e, top = fmaxf(max[h], sink);
        kept = exp2_approximate(max[h] - top);
        total = total * kept + exp2_approximate(sink - top);
      }
      const float factor = total > 0.f ? kept / total : 0.f;
      T* to = &a.out(r.first_token + token, head, lane % 4 * 2);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(to + n * 8) =
            pack<T>(values[n].r[2 * h] * factor, values[n].r[2 * h + 1] * factor);
      }
    }
  }
};

}  // namespace quire::cuda
