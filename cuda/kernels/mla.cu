// Absorbed multi-head latent attention on tensor cores, for the sizes that models have (latent 512,
// rotated key 64). All heads share a token's cache row, so heads and tokens are packed into rows: a
// block has 64 of them and reads each cache row once, as key and as value. Eight warps: for scores
// a quarter of the rows and half of a tile's keys, for values the same rows and half of the
// columns. Decode spreads the context over blocks. Other sizes go to attention_simt.

#include <algorithm>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/softmax_state.cuh"
#include "cuda/device/typed_mma.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kLatent = 512, kRowWidth = kLatent + 64;
constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kRows = 64, kKeys = 32;   // of a block; of a tile
constexpr int kColumns = kLatent / 2;   // of a warp's values
constexpr int kStride = kRowWidth + 8;  // eight rows start in different banks
constexpr int kMaxSplits = 32;
constexpr int kTilesPerSplit = 8;  // below this a split costs more than it brings
constexpr int kDecodeRows = 256;   // with more rows a request fills the device unsplit

template <class T>
struct LatentParams {
  View<T, 3> out;
  View<const T, 3> q, cache;
  View<const std::int32_t, 2> block_table;
  const std::int32_t *query_start, *seq_lens;
  float* partials;  // null: one split
  int heads, splits;
  float scale;
};

template <class T>
struct LatentShared {
  T q[kRows][kStride];
  T keys[2][kKeys][kStride];
  T weights[kRows][kKeys + 8];
  float maxima[2][kRows], sums[2][kRows];  // of either half of the keys
};

// The rows of a block: row r is head r % heads of token r / heads.
struct LatentRows {
  int request, first_token, num_tokens, num_rows, seq_len, row0;

  template <class T>
  __device__ __forceinline__ LatentRows(const LatentParams<T>& p, int block, int request_index)
      : request(request_index),
        first_token(p.query_start[request]),
        num_tokens(p.query_start[request + 1] - first_token),
        num_rows(num_tokens * p.heads),
        seq_len(p.seq_lens[request]),
        row0(block * kRows) {}
  // The last position that a row sees; −1 for a row that is not there.
  __device__ __forceinline__ int position(int row, int heads) const {
    return row0 + row < num_rows ? seq_len - num_tokens + (row0 + row) / heads : -1;
  }
};

template <class T>
__device__ void copy_queries(const LatentParams<T>& p, const LatentRows& rows,
                             LatentShared<T>& shared) {
  constexpr int kChunks = kRowWidth / kVecWidth<T>;
  for (int c = threadIdx.x; c < kRows * kChunks; c += kThreads) {
    const int r = c / kChunks, row = rows.row0 + r, d = c % kChunks * kVecWidth<T>;
    const bool there = row < rows.num_rows;
    const T* from = there ? &p.q(rows.first_token + row / p.heads, row % p.heads, d) : p.q.data;
    async_copy<16>(&shared.q[r][d], from, there ? 16 : 0);
  }
}

template <class T>
__device__ void copy_keys(const LatentParams<T>& p, const LatentRows& rows,
                          T (&keys)[kKeys][kStride], int key0, int end) {
  constexpr int kChunks = kRowWidth / kVecWidth<T>;
  const int block_size = static_cast<int>(p.cache.extent[1]);
  for (int c = threadIdx.x; c < kKeys * kChunks; c += kThreads) {
    const int k = c / kChunks, key = key0 + k, d = c % kChunks * kVecWidth<T>;
    const bool there = key < end;  // what is not becomes zero
    const T* from =
        there ? &p.cache(p.block_table(rows.request, key / block_size), key % block_size, d)
              : p.cache.data;
    async_copy<16>(&keys[k][d], from, there ? 16 : 0);
  }
}

// One warp's part; a lane has columns 2 · (lane % 4) (+1) of rows lane / 4 and lane / 4 + 8.
template <class T>
struct LatentWarp {
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 % 4 * 16, half = threadIdx.x / 128;
  FragmentC scores[2], values[kColumns / 8];
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
                                        const T (&keys)[kKeys][kStride]) {
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
                                             const T (&keys)[kKeys][kStride]) {
    const int matrix = lane / 8, r = lane % 8;
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      FragmentA w;
      load_matrices(w.r, &shared.weights[row0 + matrix % 2 * 8 + r][k + matrix / 2 * 8]);
#pragma unroll
      for (int d = 0; d < kColumns / 16; ++d) {
        std::uint32_t v[4];
        load_matrices_transposed(
            v, &keys[k + matrix % 2 * 8 + r][half * kColumns + d * 16 + matrix / 2 * 8]);
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

  __device__ __forceinline__ void store(const LatentParams<T>& p, const LatentRows& rows,
                                        int split) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (last[h] < 0) continue;
      const int at = rows.row0 + row(h), token = rows.first_token + at / p.heads,
                head = at % p.heads, column = half * kColumns + lane % 4 * 2;
      if (p.partials == nullptr) {
        const float factor = 1.f / state[h].sum;
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          *reinterpret_cast<std::uint32_t*>(&p.out(token, head, column + n * 8)) =
              pack<T>(values[n].r[2 * h] * factor, values[n].r[2 * h + 1] * factor);
        }
        continue;
      }
      float* to =
          p.partials +
          ((static_cast<std::int64_t>(token) * p.heads + head) * p.splits + split) * (kLatent + 2);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        to[column + n * 8] = values[n].r[2 * h];
        to[column + n * 8 + 1] = values[n].r[2 * h + 1];
      }
      if (half == 0 && lane % 4 == 0) {
        to[kLatent] = state[h].max;
        to[kLatent + 1] = state[h].sum;
      }
    }
  }
};

// Grid (rows, splits, requests).
template <class T>
__global__ void __launch_bounds__(kThreads)
    latent_attention_kernel(const __grid_constant__ LatentParams<T> p) {
  DYN_SHARED(memory, LatentShared<T>);
  LatentShared<T>& shared = *memory;
  const LatentRows rows(p, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.z));
  if (rows.row0 >= rows.num_rows) return;
  const int end = rows.position(min(kRows, rows.num_rows - rows.row0) - 1, p.heads) + 1;
  const int tiles = (end + kKeys - 1) / kKeys, per_split = (tiles + p.splits - 1) / p.splits;
  const int split = static_cast<int>(blockIdx.y), first = split * per_split;
  const int last = min(tiles, first + per_split);

  LatentWarp<T> warp;
  warp.clear(rows, p.heads);
  const auto copy_tile = [&](int t) {
    if (t < last) copy_keys(p, rows, shared.keys[t % 2], t * kKeys, end);
    async_copy_commit();
  };
  copy_queries(p, rows, shared);
  copy_tile(first);
  for (int t = first; t < last; ++t) {
    __syncthreads();  // the tile before has been used
    copy_tile(t + 1);
    async_copy_wait<1>();
    __syncthreads();
    warp.score(shared, shared.keys[t % 2]);
    warp.mask(shared, p.scale, t * kKeys);
    __syncthreads();
    warp.weigh(shared);
    __syncthreads();
    warp.accumulate(shared, shared.keys[t % 2]);
  }
  async_copy_wait<0>();
  warp.finish_sums(shared);
  warp.store(p, rows, split);
}

template <class T>
void launch_latent(const MlaArgs& args, SplitScratch scratch, StreamRef stream) {
  const std::int64_t heads = args.q.extent(1), rows = args.max_query_len * heads;
  const std::int64_t room = scratch.floats / (args.q.extent(0) * heads * (kLatent + 2));
  const std::int64_t wanted = rows <= kDecodeRows ? args.max_seq_len / (kTilesPerSplit * kKeys) : 1;
  const auto splits =
      static_cast<int>(std::clamp<std::int64_t>(std::min(wanted, room), 1, kMaxSplits));
  const LatentParams<T> p{.out = device_view<T, 3>(args.out),
                          .q = device_view<const T, 3>(args.q),
                          .cache = device_view<const T, 3>(args.cache),
                          .block_table = device_view<const std::int32_t, 2>(args.block_table),
                          .query_start = static_cast<const std::int32_t*>(args.query_start.data()),
                          .seq_lens = static_cast<const std::int32_t*>(args.seq_lens.data()),
                          .partials = splits > 1 ? scratch.data : nullptr,
                          .heads = static_cast<int>(heads),
                          .splits = splits,
                          .scale = args.scale};
  const dim3 grid(static_cast<unsigned>((rows + kRows - 1) / kRows), static_cast<unsigned>(splits),
                  static_cast<unsigned>(args.seq_lens.extent(0)));
  CUDA_CHECK(launch(latent_attention_kernel<T>, grid, dim3(kThreads), sizeof(LatentShared<T>),
                    native(stream), p));
  if (splits > 1) merge_splits(args.out, {}, scratch.data, splits, stream);
}

bool aligned(const TensorView& tensor) {  // rows begin at multiples of 16 bytes
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0 && tensor.stride(0) % 8 == 0 &&
         tensor.stride(1) % 8 == 0 && tensor.stride(2) == 1;
}

bool on_tensor_cores(const MlaArgs& args) {
  const DType dtype = args.q.dtype();
  return (dtype == DType::bf16 || dtype == DType::f16) && args.cache.dtype() == dtype &&
         args.out.dtype() == dtype && args.q.extent(2) == kRowWidth &&
         args.out.extent(2) == kLatent && aligned(args.q) && aligned(args.cache) &&
         aligned(args.out);
}

}  // namespace

void mla_attention(const MlaArgs& args, SplitScratch scratch, StreamRef stream) {
  if (args.q.extent(0) == 0) return;
  if (on_tensor_cores(args)) {
    if (args.q.dtype() == DType::bf16) return launch_latent<__nv_bfloat16>(args, scratch, stream);
    return launch_latent<__half>(args, scratch, stream);
  }
  // One KV head, whose values are the front of its keys.
  const TensorView keys = args.cache.split_last(args.cache.extent(2));
  AttentionArgs plain;
  plain.out = args.out;
  plain.q = args.q;
  plain.k_cache = keys;
  plain.v_cache = keys.narrow(3, 0, args.out.extent(2));
  plain.block_table = args.block_table;
  plain.query_start = args.query_start;
  plain.seq_lens = args.seq_lens;
  plain.scale = args.scale;
  plain.max_query_len = args.max_query_len;
  plain.max_seq_len = args.max_seq_len;
  attention_simt(plain, scratch, stream);
}

}  // namespace quire::cuda
