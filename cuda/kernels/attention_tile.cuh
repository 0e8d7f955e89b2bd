#pragma once
// One warp's work on a tile of keys: scores, online softmax, weighted values. The warp has 16 rows;
// a row is one query head of one token. Fragments as in cuda/device/mma.cuh: a lane has columns
// 2·(lane%4) of rows lane/4 and lane/4 + 8. A tile of fp8 is widened from shared memory straight
// into them, as f16, which holds each of its values: lanes get four adjacent codes, so it has other
// dims then; dim_of says which.

#include "cuda/device/exp2.cuh"
#include "cuda/device/fp8.cuh"
#include "cuda/device/softmax_state.cuh"

namespace quire::cuda {

constexpr float kLog2E = 1.44269504f;

// What is multiplied: queries of T with a cache of Cache.
template <class T, class Cache>
using Multiplied = std::conditional_t<std::is_same_v<T, Cache>, T, __half>;

// A tile in shared memory, [kKeys][kDim]; rows are padded so that eight of them start in different
// banks.
template <class T, int kDim, int kKeys>
struct KeyTile {
  static constexpr int kStride = kDim + kVecWidth<T>;
  T rows[kKeys * kStride];
  __device__ __forceinline__ const T* at(int key, int dim) const {
    return rows + key * kStride + dim;
  }
  __device__ __forceinline__ T* at(int key, int dim) { return rows + key * kStride + dim; }
};

// What a row may see: keys in [first, last].
struct Visible {
  int first, last;
  __device__ __forceinline__ bool operator()(int key) const { return first <= key && key <= last; }
};

template <class T, class Cache, int kDim, int kKeys, int kValueDim = kDim>
struct WarpRows {
  using Element = Multiplied<T, Cache>;
  static constexpr bool kPlain = std::is_same_v<T, Cache>;
  static constexpr int kDepth = 2 * kVecWidth<Cache>;  // dims of a load

  FragmentA q[kDim / 16];
  FragmentC scores[kKeys / 8];
  FragmentC values[kValueDim / 8];
  SoftmaxState state[2];  // of rows lane/4 and lane/4 + 8
  Visible visible[2];
  float scale[2];  // of scores

  // The n-th pair of dims that a lane has, of queries and of values.
  __device__ __forceinline__ static int dim_of(int n) {
    const int lane = threadIdx.x % 4;
    return kPlain ? n * 8 + lane * 2 : n / 2 * 16 + lane * 4 + n % 2 * 2;
  }
  __device__ __forceinline__ float2 pair_of(int n, int h) const {
    if constexpr (kPlain) return {values[n].r[2 * h], values[n].r[2 * h + 1]};
    return {values[n / 2 * 2].r[2 * h + n % 2], values[n / 2 * 2 + 1].r[2 * h + n % 2]};
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (FragmentC& v : values) v = {};
    state[0] = state[1] = {};
  }

  // scores = q · kᵀ for keys [key0, key0 + kKeys) of the tile.
  template <int kTile>
  __device__ __forceinline__ void score(const KeyTile<Cache, kDim, kTile>& k, int key0) {
    const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      scores[2 * n] = scores[2 * n + 1] = {};
#pragma unroll
      for (int d = 0; d < kDim; d += kDepth) {
        std::uint32_t r[4];
        load_matrices(
            r, k.at(key0 + n * 16 + matrix / 2 * 8 + row, d + matrix % 2 * kVecWidth<Cache>));
        if constexpr (kPlain) {
          mma<T>(scores[2 * n], q[d / 16], FragmentB{{r[0], r[1]}});
          mma<T>(scores[2 * n + 1], q[d / 16], FragmentB{{r[2], r[3]}});
        } else {
#pragma unroll
          for (int m = 0; m < 4; ++m)
            mma_f16(scores[2 * n + m / 2], q[d / 16 + m % 2], wide_pairs<__half>(r[m]));
        }
      }
    }
  }

  // Scaled, and soft_cap · tanh(score / soft_cap), where tanh(x) = 1 − 2 / (1 + e^2x).
  __device__ __forceinline__ void cap(float soft_cap) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float to_exponent = __fdividef(2.f * kLog2E * scale[h], soft_cap);
#pragma unroll
      for (FragmentC& c : scores) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = c.r[2 * h + i];
          s = soft_cap * (1.f - __fdividef(2.f, 1.f + exp2_approximate(s * to_exponent)));
        }
      }
    }
  }

  // Scores become weights; what was summed so far is rescaled to the new maxima. Scales are
  // positive. key_index: of the tile's first key used.
  __device__ __forceinline__ void softmax(float soft_cap, int key_index) {
    const int column = threadIdx.x % 4 * 2;
    if (soft_cap > 0.f) cap(soft_cap);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores[n].r[2 * h + i];
          if (!visible[h](key_index + n * 8 + column + i)) s = -INFINITY;
          top = fmaxf(top, s);
        }
      }
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float factor = soft_cap > 0.f ? 1.f : scale[h];
      top = fmaxf(state[h].max, top * factor);
      const float rescale = state[h].factor(top);
      const float to_exponent = factor * kLog2E, lowered = top == -INFINITY ? 0.f : top * kLog2E;
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores[n].r[2 * h + i];
          s = exp2_approximate(fmaf(s, to_exponent, -lowered));
          sum += s;
        }
      }
      state[h].max = top;
      // Of this lane's columns; summed over lanes at the end.
      state[h].sum = state[h].sum * rescale + sum;
#pragma unroll
      for (FragmentC& v : values) {
        v.r[2 * h] *= rescale;
        v.r[2 * h + 1] *= rescale;
      }
    }
  }

  // values += weights · v.
  template <int kTile>
  __device__ __forceinline__ void accumulate(const KeyTile<Cache, kValueDim, kTile>& v, int key0) {
    const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      const FragmentC &front = scores[2 * n], &back = scores[2 * n + 1];
      const FragmentA weights{
          {pack<Element>(front.r[0], front.r[1]), pack<Element>(front.r[2], front.r[3]),
           pack<Element>(back.r[0], back.r[1]), pack<Element>(back.r[2], back.r[3])}};
#pragma unroll
      for (int d = 0; d < kValueDim; d += kDepth) {
        std::uint32_t r[4];
        load_matrices_transposed(
            r, v.at(key0 + n * 16 + matrix % 2 * 8 + row, d + matrix / 2 * kVecWidth<Cache>));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const std::uint32_t low_keys = r[2 * m], high_keys = r[2 * m + 1];
          if constexpr (kPlain) {
            mma<T>(values[d / 8 + m], weights, FragmentB{{low_keys, high_keys}});
          } else {  // two dims of two keys in each: first the even dims, then the odd ones
            const FragmentB low = wide_pairs<__half>(__byte_perm(low_keys, 0, 0x3120)),
                            high = wide_pairs<__half>(__byte_perm(high_keys, 0, 0x3120));
            mma_f16(values[d / 8 + 2 * m], weights, {{low.r[0], high.r[0]}});
            mma_f16(values[d / 8 + 2 * m + 1], weights, {{low.r[1], high.r[1]}});
          }
        }
      }
    }
  }

  // Four lanes share a row: their sums become the row's.
  __device__ __forceinline__ void finish_sums() {
    for (SoftmaxState& s : state) {
      s.sum += __shfl_xor_sync(0xffffffffu, s.sum, 1);
      s.sum += __shfl_xor_sync(0xffffffffu, s.sum, 2);
    }
  }
};

}  // namespace quire::cuda
