#pragma once
// One block's work on latent attention (mla.cu): its rows, its shared memory, and what a warp does
// with a tile of keys. Fragments as in cuda/device/mma.cuh.

#include "backend/ops.h"
#include "cuda/device/softmax_state.cuh"
#include "cuda/device/typed_mma.cuh"
#include "cuda/kernels/page_copies.cuh"

namespace quire::cuda {

constexpr int kLatent = 512, kRowWidth = kLatent + 64;
constexpr int kLatentRows = 64, kLatentKeys = 32;  // of a block; of a tile
constexpr int kLatentStride = kRowWidth + 8;       // eight rows start in different banks
constexpr int kLatentColumns = kLatent / 2;        // of a warp's values
constexpr int kLatentTilesPerSplit = 8;  // below this a split costs more than it brings; one that
                                         // finds no keys left writes no values
constexpr int kLatentDecodeRows = 256;   // with more rows a request fills the device unsplit

template <class T, class Cache>
struct LatentParams {
  View<T, 3> out;
  View<const T, 3> q;
  View<const Cache, 3> cache;
  View<const std::int32_t, 2> block_table;
  const std::int32_t *query_start, *seq_lens;
  float* partials;  // null: one split
  FastDivide block_size;
  int heads, splits;
  float scale, value_scale;

  __device__ __forceinline__ PageSource<Cache> keys_of(int request) const {
    return {cache.data, cache.stride[0],  cache.stride[1],
            block_size, block_table.data, request * block_table.stride[0]};
  }
};

template <class T, class Cache>
LatentParams<T, Cache> latent_params(const MlaArgs& args, int splits, float* partials) {
  return {.out = device_view<T, 3>(args.out),
          .q = device_view<const T, 3>(args.q),
          .cache = device_view<const Cache, 3>(args.cache),
          .block_table = device_view<const std::int32_t, 2>(args.block_table),
          .query_start = static_cast<const std::int32_t*>(args.query_start.data()),
          .seq_lens = static_cast<const std::int32_t*>(args.seq_lens.data()),
          .partials = splits > 1 ? partials : nullptr,
          .block_size = FastDivide(static_cast<int>(args.cache.extent(1))),
          .heads = static_cast<int>(args.q.extent(1)),
          .splits = splits,
          .scale = args.scale * args.cache_scale,
          .value_scale = args.cache_scale};
}

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

// The rows of a block: row r is head r % heads of token r / heads.
struct LatentRows {
  int request, first_token, num_tokens, num_rows, seq_len, row0;

  template <class T, class Cache>
  __device__ __forceinline__ LatentRows(const LatentParams<T, Cache>& p, int block,
                                        int request_index)
      : request(request_index),
        first_token(p.query_start[request]),
        num_tokens(p.query_start[request + 1] - first_token),
        num_rows(num_tokens * p.heads),
        seq_len(p.seq_lens[request]),
        row0(block * kLatentRows) {}
  // The last position that a row sees; −1 for a row that is not there.
  __device__ __forceinline__ int position(int row, int heads) const {
    return row0 + row < num_rows ? seq_len - num_tokens + (row0 + row) / heads : -1;
  }
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
                                        int split) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (last[h] < 0) continue;
      const int at = rows.row0 + row(h), token = rows.first_token + at / p.heads,
                head = at % p.heads, column = half * kLatentColumns + lane % 4 * 2;
      if (p.partials == nullptr) {
        const float sum = state[h].sum;
#pragma unroll
        for (int n = 0; n < kLatentColumns / 8; ++n) {
          *reinterpret_cast<std::uint32_t*>(&p.out(token, head, column + n * 8)) =
              pack<T>(values[n].r[2 * h] * p.value_scale / sum,
                      values[n].r[2 * h + 1] * p.value_scale / sum);
        }
        continue;
      }
      float* to =
          p.partials +
          ((static_cast<std::int64_t>(token) * p.heads + head) * p.splits + split) * (kLatent + 2);
      if (state[h].sum > 0.f) {
#pragma unroll
        for (int n = 0; n < kLatentColumns / 8; ++n) {
          to[column + n * 8] = values[n].r[2 * h] * p.value_scale;
          to[column + n * 8 + 1] = values[n].r[2 * h + 1] * p.value_scale;
        }
      }
      if (half == 0 && lane % 4 == 0) {
        to[kLatent] = state[h].max;
        to[kLatent + 1] = state[h].sum;
      }
    }
  }
};

}  // namespace quire::cuda
