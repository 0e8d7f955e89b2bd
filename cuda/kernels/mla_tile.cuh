#pragma once
// One block's work on latent attention (mla.cu): its rows, its shared memory, and what a warp does
// with a tile of keys. Fragments as in cuda/device/mma.cuh.

#include "cuda/kernels/latent_work.cuh"

namespace quire::cuda {

constexpr int kLatentStride = kRowWidth + 8;  // eight rows start in different banks
constexpr int kLatentColumns = kLatent / 2;   // of a warp's values

template <class T>
struct LatentShared {
  T q[kLatentRows][kLatentStride];
  T weights[kLatentRows][kLatentKeys + 8];
  float maxima[2][kLatentRows], sums[2][kLatentRows];  // of either half of the keys
};

// Tiles of keys: as they arrive, and as T.
template <class T, class Cache>
struct LatentTiles {
  Cache stages[2][kLatentKeys][kRowWidth];
  T keys[kLatentKeys][kLatentStride];
};
template <class T>
struct LatentTiles<T, T> {
  T stages[2][kLatentKeys][kLatentStride];
};

// One warp's part; a lane has columns 2 · (lane % 4) (+1) of rows lane / 4 and lane / 4 + 8.
template <class T>
struct LatentWarp {
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 % 4 * 16, half = threadIdx.x / 128;
  FragmentC scores[2], values[kLatentColumns / 8];
  SoftmaxState state[2];
  int last[2];  // position

  __device__ __forceinline__ int row(int h) const { return row0 + lane / 4 + 8 * h; }

  __device__ __forceinline__ void clear(const LatentRows& rows, int heads) {
#pragma unroll
    for (FragmentC& v : values) v = {};
    state[0] = state[1] = {};
    for (int h = 0; h < 2; ++h) last[h] = rows.position(row(h), heads);
  }

  // scores = q · keyᵀ of this warp's sixteen keys.
  __device__ __forceinline__ void score(const LatentShared<T>& shared,
                                        const T (&keys)[kLatentKeys][kLatentStride]) {
    const int matrix = lane / 8, r = lane % 8;
    scores[0] = scores[1] = {};
#pragma unroll 4
    for (int d = 0; d < kRowWidth; d += 16) {
      FragmentA q;
      std::uint32_t k[4];
      load_matrices(q.r, &shared.q[row0 + matrix % 2 * 8 + r][d + matrix / 2 * 8]);
      load_matrices(k, &keys[half * 16 + matrix / 2 * 8 + r][d + matrix % 2 * 8]);
      mma<T>(scores[0], q, FragmentB{{k[0], k[1]}});
      mma<T>(scores[1], q, FragmentB{{k[2], k[3]}});
    }
  }

  // Scaled and masked; the largest of each row goes to shared memory.
  __device__ __forceinline__ void mask(LatentShared<T>& shared, float scale, int key0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores[n].r[2 * h + i];
          const int key = key0 + half * 16 + n * 8 + lane % 4 * 2 + i;
          s = key <= last[h] ? s * scale : -INFINITY;
          top = fmaxf(top, s);
        }
      }
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      if (lane % 4 == 0) shared.maxima[half][row(h)] = top;
    }
  }

  // Scores become weights in shared memory; what was summed so far is rescaled.
  __device__ __forceinline__ void weigh(LatentShared<T>& shared) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float top =
          fmaxf(state[h].max, fmaxf(shared.maxima[0][row(h)], shared.maxima[1][row(h)]));
      const float rescale = state[h].factor(top);
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float w[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float s = scores[n].r[2 * h + i];
          sum += w[i] = s == -INFINITY ? 0.f : __expf(s - top);
        }
        *reinterpret_cast<std::uint32_t*>(
            &shared.weights[row(h)][half * 16 + n * 8 + lane % 4 * 2]) = pack<T>(w[0], w[1]);
      }
      state[h].max = top;
      state[h].sum = state[h].sum * rescale + sum;  // of this lane's keys
#pragma unroll
      for (FragmentC& v : values) {
        v.r[2 * h] *= rescale;
        v.r[2 * h + 1] *= rescale;
      }
    }
  }

  // values += weights · latents of this warp's columns.
  __device__ __forceinline__ void accumulate(const LatentShared<T>& shared,
                                             const T (&keys)[kLatentKeys][kLatentStride]) {
    const int matrix = lane / 8, r = lane % 8;
#pragma unroll
    for (int k = 0; k < kLatentKeys; k += 16) {
      FragmentA w;
      load_matrices(w.r, &shared.weights[row0 + matrix % 2 * 8 + r][k + matrix / 2 * 8]);
#pragma unroll
      for (int d = 0; d < kLatentColumns / 16; ++d) {
        std::uint32_t v[4];
        load_matrices_transposed(
            v, &keys[k + matrix % 2 * 8 + r][half * kLatentColumns + d * 16 + matrix / 2 * 8]);
        mma<T>(values[2 * d], w, FragmentB{{v[0], v[1]}});
        mma<T>(values[2 * d + 1], w, FragmentB{{v[2], v[3]}});
      }
    }
  }

  // Sums over lanes and over both halves of the keys.
  __device__ __forceinline__ void finish_sums(LatentShared<T>& shared) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float& sum = state[h].sum;
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (lane % 4 == 0) shared.sums[half][row(h)] = sum;
    }
    __syncthreads();
    for (int h = 0; h < 2; ++h) state[h].sum = shared.sums[0][row(h)] + shared.sums[1][row(h)];
  }

  template <class Cache>
  __device__ __forceinline__ void store(const LatentParams<T, Cache>& p, const LatentRows& rows,
                                        float* partial) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (last[h] < 0) continue;
      const int column = half * kLatentColumns + lane % 4 * 2;
      store_latents(p, rows, partial, row(h), state[h], half == 0 && lane % 4 == 0,
                    [&](const auto& write) {
#pragma unroll
                      for (int n = 0; n < kLatentColumns / 8; ++n)
                        write(column + n * 8, values[n].r[2 * h], values[n].r[2 * h + 1]);
                    });
    }
  }
};

}  // namespace quire::cuda
