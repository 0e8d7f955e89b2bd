#pragma once
// One warpgroup's work on a tile of keys: scores, online softmax, weighted values, with Hopper's
// warpgroup products. Fragments as in cuda/device/warpgroup.cuh.

#include "cuda/device/exp2.cuh"
#include "cuda/device/roles.cuh"
#include "cuda/kernels/part_runs.cuh"
#include "cuda/kernels/prompt_args.cuh"

namespace quire::cuda {

constexpr float kLn2 = .693147181f, kMostGrowth = 8.f;

// A warpgroup's 64 rows: a lane has columns 2·(lane%4) of its warp's rows lane/4 and lane/4 + 8.
// Maxima and scores are in units of log 2.
template <class T, int kDim, int kValueDim = kDim>
struct GroupRows {
  using Tile = SwizzledTile<T, kDim>;
  using ValueTile = SwizzledTile<T, kValueDim>;
  static constexpr bool kHoldsQueries = !kSharesQueries<kDim>;
  static constexpr int kKeys = kTileKeys<kDim>, kDims = ValueTile::kCount * kPanelDims<T>;
  static constexpr int kProducts = kDims > 128 ? 2 : 1, kBlocks = kDims / 8 / kProducts;
  static_assert(ValueTile::kRows == kKeys);

  FragmentA q[kHoldsQueries ? kDim / 16 : 1];
  FragmentC scores[kKeys / 8];
  FragmentA weights[kKeys / 16];
  FragmentC values[kProducts][kBlocks];  // of a product at most 128 dims
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
  int first[2], last[2];  // keys that the rows see; none: first > last

  // shared: where queries go that are not held.
  template <class Args, class Rows, class Queries>
  __device__ __forceinline__ void load(const Args& a, const Rows& r, int kv_head, int row0,
                                       Queries& shared) {
    for_values([](FragmentC& v, int) { v = {}; });
    if constexpr (!kHoldsQueries) share_queries(a, r, kv_head, row0, shared);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(row0, h);
      const bool in_range = row < r.num_rows;
      const int token = in_range ? row / a.group : 0, head = in_range ? row - token * a.group : 0;
      const int position = r.seq_len - r.num_tokens + token;
      first[h] = in_range ? a.seen_from(position) : 1;
      last[h] = in_range ? r.seen_to(position) : 0;
      if constexpr (kHoldsQueries) {
        const T* from = &a.q(r.first_token + token, kv_head * a.group + head,
                             static_cast<int>(threadIdx.x) % 4 * 2);
        std::uint32_t pairs[kDim / 8];
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n)
          pairs[n] = in_range ? *reinterpret_cast<const std::uint32_t*>(from + n * 8) : 0u;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) q[n / 2].r[h + n % 2 * 2] = pairs[n];
      }
    }
  }
  template <class Args, class Rows>
  __device__ __forceinline__ void share_queries(const Args& a, const Rows& r, int kv_head, int row0,
                                                QueryTile<T, kDim>& shared) {
    constexpr int kChunks = kDim / kVecWidth<T>, kOfPanel = kPanelBytes / 16;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x) % kGroupThreads; i < kGroupRows * kChunks;
         i += kGroupThreads) {
      const int of_group = i / kChunks, chunk = i % kChunks, row = row0 + of_group;
      uint4 some{};
      if (row < r.num_rows) {
        const int token = row / a.group, head = kv_head * a.group + row - token * a.group;
        some = *reinterpret_cast<const uint4*>(
            &a.q(r.first_token + token, head, chunk * kVecWidth<T>));
      }
      store_operand(&shared.panel[chunk / kOfPanel][of_group]
                                 [swizzled_chunk(of_group, chunk % kOfPanel) * kVecWidth<T>],
                    some);
    }
    fence_async_proxy();  // the group meets where its first turn begins
  }

  template <class Queries>
  __device__ __forceinline__ void begin_scores(const Tile& k, const Queries& shared) {
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      const SharedMatrix b = shared_matrix(&k.panel[d / 4]).advanced(d % 4 * 32);
      if constexpr (kHoldsQueries) {
        warpgroup_mma<T, Major::k>(scores, q[d], b, d > 0);
      } else {
        const SharedMatrix a = shared_matrix(&shared.panel[d / 4]).advanced(d % 4 * 32);
        warpgroup_mma<T>(scores, a, b, d > 0);
      }
    }
    warpgroup_commit();
  }
  __device__ __forceinline__ void begin_values(const ValueTile& v) {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      const SharedMatrix b =
          shared_matrix(&v.panel[p * ValueTile::kCount / kProducts], ValueTile::kBytes);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n)
        warpgroup_mma<T, Major::n>(values[p], weights[n], b.advanced(n * 2048), true);
    }
    warpgroup_commit();
  }
  // f(fragment, n) of dims 8 n to 8 n + 7; heads of 96 have not all of them.
  template <class F>
  __device__ __forceinline__ void for_values(const F& f) {
#pragma unroll
    for (int n = 0; n < kDims / 8; ++n) f(values[n / kBlocks][n % kBlocks], n);
  }
  __device__ __forceinline__ void hold_values() {
#pragma unroll
    for (FragmentC(&some)[kBlocks] : values) hold(some);
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
      for (int n = 0; n < kKeys / 8; ++n) {
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
      for (int n = 0; n < kKeys / 8; ++n) {
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

  template <class Args>
  __device__ __forceinline__ void weigh(const Args& a, int key0, bool all, float (&rescale)[2]) {
    if (a.to_exponent > 0.f) cap(a.to_exponent);
    if (all) return weigh_rows<true>(key0, a.to_log2, rescale);
    weigh_rows<false>(key0, a.to_log2, rescale);
  }

  __device__ __forceinline__ void pack_weights(const float (&rescale)[2]) {
    if (__any_sync(0xffffffffu, rescale[0] != 1.f || rescale[1] != 1.f)) {
      for_values([&](FragmentC& v, int) {
#pragma unroll
        for (int i = 0; i < 4; ++i) v.r[i] *= rescale[i / 2];
      });
    }
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      const FragmentC &low = scores[2 * n], &high = scores[2 * n + 1];
      weights[n] = {{pack<T>(low.r[0], low.r[1]), pack<T>(low.r[2], low.r[3]),
                     pack<T>(high.r[0], high.r[1]), pack<T>(high.r[2], high.r[3])}};
    }
  }

  // Of the rows of a lane, from row0 on.
  __device__ __forceinline__ static int row_of(int row0, int h) {
    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    return row0 + thread / 32 * 16 + thread % 32 / 4 + 8 * h;
  }
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (float& s : sum) {
      s += __shfl_xor_sync(0xffffffffu, s, 1);
      s += __shfl_xor_sync(0xffffffffu, s, 2);
    }
  }

  __device__ __forceinline__ void store(const WgmmaArgs<T>& a, const Request& r, int kv_head,
                                        int row0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(row0, h);
      if (row >= r.num_rows) continue;
      const int token = row / a.group, head = kv_head * a.group + row - token * a.group;
      float total = sum[h], kept = 1.f;
      if (a.sinks != nullptr) {
        const float sink = a.sinks[head] * kLog2e, top = fmaxf(max[h], sink);
        kept = exp2_approximate(max[h] - top);
        total = total * kept + exp2_approximate(sink - top);
      }
      const float factor = total > 0.f ? kept * a.value_scale / total : 0.f;
      T* to = &a.out(r.first_token + token, head, static_cast<int>(threadIdx.x) % 4 * 2);
      for_values([&](const FragmentC& v, int n) {
        if (n >= kValueDim / 8) return;
        *reinterpret_cast<std::uint32_t*>(to + n * 8) =
            pack<T>(v.r[2 * h] * factor, v.r[2 * h + 1] * factor);
      });
    }
  }

  // As results of a part of the keys, those of the block's rows from `to` on. num_rows, row0: of
  // the block.
  __device__ __forceinline__ void store_part(float* to, int num_rows, int row0, float value_scale) {
    const int quarter = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(row0, h);
      if (row >= num_rows) continue;
      float* part = to + row * part_floats(kValueDim);
      for_values([&](const FragmentC& v, int n) {
        if (n >= kValueDim / 8 || !(sum[h] > 0.f)) return;
        *reinterpret_cast<float2*>(part + n * 8 + quarter * 2) = {v.r[2 * h] * value_scale,
                                                                  v.r[2 * h + 1] * value_scale};
      });
      if (quarter == 0) *reinterpret_cast<float2*>(part + kValueDim) = {max[h] * kLn2, sum[h]};
    }
  }
};

}  // namespace quire::cuda
