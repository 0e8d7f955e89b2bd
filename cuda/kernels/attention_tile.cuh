#pragma once
// One warp's work on a tile of keys: scores, online softmax, weighted values. The warp has 16 rows;
// a row is one query head of one token. Fragments as in cuda/device/mma.cuh: a lane has columns
// 2·(lane%4) of rows lane/4 and lane/4 + 8.

#include "cuda/device/exp2.cuh"
#include "cuda/device/softmax_state.cuh"
#include "cuda/device/typed_mma.cuh"

namespace quire::cuda {

constexpr int kTileKeys = 64;

// A tile in shared memory, [kTileKeys][kDim]; rows are padded so that eight of them start in
// different banks.
template <class T, int kDim>
struct KeyTile {
  static constexpr int kStride = kDim + 16 / static_cast<int>(sizeof(T));
  T rows[kTileKeys * kStride];
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

template <class T, int kKDim, int kVDim, int kKeys>
struct WarpRows {
  FragmentA q[kKDim / 16];
  FragmentC scores[kKeys / 8];
  FragmentC values[kVDim / 8];
  SoftmaxState state[2];  // of rows lane/4 and lane/4 + 8
  Visible visible[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (FragmentC& v : values) v = {};
    state[0] = state[1] = {};
  }

  // scores = q · kᵀ for keys [key0, key0 + kKeys) of the tile.
  __device__ __forceinline__ void score(const KeyTile<T, kKDim>& k, int key0) {
    const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      scores[2 * n] = scores[2 * n + 1] = {};
#pragma unroll
      for (int d = 0; d < kKDim / 16; ++d) {
        std::uint32_t r[4];
        load_matrices(r, k.at(key0 + n * 16 + matrix / 2 * 8 + row, d * 16 + matrix % 2 * 8));
        mma<T>(scores[2 * n], q[d], FragmentB{{r[0], r[1]}});
        mma<T>(scores[2 * n + 1], q[d], FragmentB{{r[2], r[3]}});
      }
    }
  }

  // Scaled, and soft_cap · tanh(score / soft_cap), where tanh(x) = 1 − 2 / (1 + e^2x).
  __device__ __forceinline__ void cap(float scale, float soft_cap) {
    const float to_exponent = __fdividef(2.f * 1.44269504f * scale, soft_cap);
#pragma unroll
    for (FragmentC& c : scores) {
#pragma unroll
      for (float& s : c.r)
        s = soft_cap * (1.f - __fdividef(2.f, 1.f + exp2_approximate(s * to_exponent)));
    }
  }

  // Scores become weights; what was summed so far is rescaled to the new maxima. key_index: of the
  // tile's first key used.
  __device__ __forceinline__ void softmax(float scale, float soft_cap, int key_index) {
    const int column = threadIdx.x % 4 * 2;
    if (soft_cap > 0.f) cap(scale, soft_cap);
    const float factor = soft_cap > 0.f ? 1.f : scale;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = state[h].max;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores[n].r[2 * h + i];
          s *= factor;
          if (!visible[h](key_index + n * 8 + column + i)) s = -INFINITY;
          top = fmaxf(top, s);
        }
      }
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float rescale = state[h].factor(top);
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores[n].r[2 * h + i];
          s = s == -INFINITY ? 0.f : __expf(s - top);
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
  __device__ __forceinline__ void accumulate(const KeyTile<T, kVDim>& v, int key0) {
    const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      const FragmentC &low = scores[2 * n], &high = scores[2 * n + 1];
      const FragmentA weights{{pack<T>(low.r[0], low.r[1]), pack<T>(low.r[2], low.r[3]),
                               pack<T>(high.r[0], high.r[1]), pack<T>(high.r[2], high.r[3])}};
#pragma unroll
      for (int d = 0; d < kVDim / 16; ++d) {
        std::uint32_t r[4];
        load_matrices_transposed(
            r, v.at(key0 + n * 16 + matrix % 2 * 8 + row, d * 16 + matrix / 2 * 8));
        mma<T>(values[2 * d], weights, FragmentB{{r[0], r[1]}});
        mma<T>(values[2 * d + 1], weights, FragmentB{{r[2], r[3]}});
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
