// Paged attention on tensor cores. The query heads of one KV head are packed into rows, so a tile
// of K and V is read once for all of them. Requests with at most 16 rows (decode) spread the keys
// of a tile over four warps and the context over blocks: bound by reading the cache. Others
// (prefill) give each warp 16 rows: bound by the tensor cores. Tiles of an fp8 cache arrive as they
// are and are widened in shared memory; the scale of the keys is in that of the scores, the values'
// is the result's.

#include <algorithm>

#include "cuda/device/fp8.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/attention_tile.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/paged_args.cuh"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kWarpRows = 16;
static_assert(kWarpRows == kMmaDecodeRows);
constexpr int kTilesPerSplit = 4;  // below this a split costs more than it brings; one that finds
                                   // no keys left ends at once

template <class T, class Cache>
struct MmaArgs : PagedArgs<T, Cache> {
  float* partials;  // null: one split
  int splits;

  MmaArgs(const AttentionArgs& args, float* to, int count)
      : PagedArgs<T, Cache>(args), partials(to), splits(count) {}
};

// A request seen from one block.
struct Queries {
  int request, kv_head, first_token, num_tokens, num_rows, seq_len;
};

template <class T, int kDim>
struct Stage {
  KeyTile<T, kDim> k, v;
};

template <class T, int kDim>
__device__ void widen_tile(KeyTile<T, kDim>& to, const KeyTile<__nv_fp8_e4m3, kDim>& from) {
  constexpr int kChunks = kDim / kCodes;
  for (int c = threadIdx.x; c < kTileKeys * kChunks; c += kWarps * 32) {
    const int row = c / kChunks, dim = c % kChunks * kCodes;
    widen(to.at(row, dim), from.at(row, dim));
  }
}

template <class T, class Cache, int kDim, int kKeys>
__device__ void load_queries(WarpRows<T, kDim, kDim, kKeys>& w, const MmaArgs<T, Cache>& a,
                             const Queries& q, int row0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + lane / 4 + 8 * h;
    const bool in_range = row < q.num_rows;
    const int token = in_range ? row / a.group : 0,
              head = q.kv_head * a.group + (in_range ? row % a.group : 0);
    const int position = q.seq_len - q.num_tokens + token;
    w.visible[h] = in_range ? Visible{a.window > 0 ? max(0, position - a.window + 1) : 0, position}
                            : Visible{1, 0};
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      const T* from = &a.q(q.first_token + token, head, d * 16 + lane % 4 * 2);
      w.q[d].r[h] = in_range ? *reinterpret_cast<const std::uint32_t*>(from) : 0u;
      w.q[d].r[2 + h] = in_range ? *reinterpret_cast<const std::uint32_t*>(from + 8) : 0u;
    }
  }
}

// Values of the two rows of a lane, finished or as a split's partial result.
template <class T, class Cache, int kDim, int kKeys>
__device__ void store_rows(WarpRows<T, kDim, kDim, kKeys>& w, const MmaArgs<T, Cache>& a,
                           const Queries& q, int row0, int split) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + lane / 4 + 8 * h;
    if (row >= q.num_rows) continue;
    const int token = q.first_token + row / a.group, head = q.kv_head * a.group + row % a.group;
    SoftmaxState& s = w.state[h];
    if (a.partials != nullptr) {
      float* to = a.partials +
                  ((static_cast<std::int64_t>(token) * a.out.extent[1] + head) * a.splits + split) *
                      (kDim + 2);
      if (s.sum > 0.f) {  // a split without keys has no values either
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i)
            to[n * 8 + lane % 4 * 2 + i] = w.values[n].r[2 * h + i] * a.value_scale;
        }
      }
      if (lane % 4 == 0) {
        to[kDim] = s.max;
        to[kDim + 1] = s.sum;
      }
      continue;
    }
    const float kept = (a.sinks != nullptr ? s.push_sink(a.sinks[head]) : 1.f) * a.value_scale;
    const auto finished = [&](float value) { return s.sum > 0.f ? value * kept / s.sum : 0.f; };
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(&a.out(token, head, n * 8 + lane % 4 * 2)) =
          pack<T>(finished(w.values[n].r[2 * h]), finished(w.values[n].r[2 * h + 1]));
    }
  }
}

// Decode: four warps hold partial results of the same 16 rows; the first warp gets their sum. The
// tiles that lay in shared memory have been read: the loop over them ends with a barrier.
template <class T, int kDim, int kKeys>
__device__ void merge_warps(WarpRows<T, kDim, kDim, kKeys>& w, float* shared) {
  constexpr int kPerLane = kDim / 8 * 4 + 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* mine = shared + (warp * 32 + lane) * kPerLane;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) mine[n * 4 + i] = w.values[n].r[i];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    mine[kDim / 2 + 2 * h] = w.state[h].max;
    mine[kDim / 2 + 2 * h + 1] = w.state[h].sum;
  }
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    SoftmaxState total;
    for (int o = 0; o < kWarps; ++o) {
      const float* other = shared + (o * 32 + lane) * kPerLane + kDim / 2 + 2 * h;
      total.merge({other[0], other[1]});
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) w.values[n].r[2 * h] = w.values[n].r[2 * h + 1] = 0.f;
    for (int o = 0; o < kWarps; ++o) {
      const float* other = shared + (o * 32 + lane) * kPerLane;
      const float factor = SoftmaxState{other[kDim / 2 + 2 * h], 0.f}.factor(total.max);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        w.values[n].r[2 * h] += other[n * 4 + 2 * h] * factor;
        w.values[n].r[2 * h + 1] += other[n * 4 + 2 * h + 1] * factor;
      }
    }
    w.state[h] = total;
  }
}

// The stage as T: itself, or, of an fp8 cache, what the threads make of it together.
template <class T, class Cache, int kDim>
__device__ __forceinline__ const Stage<T, kDim>& usable(Stage<Cache, kDim>* stages, int index) {
  if constexpr (std::is_same_v<T, Cache>) {
    return stages[index];
  } else {
    auto& wide = *reinterpret_cast<Stage<T, kDim>*>(stages + 2);
    widen_tile(wide.k, stages[index].k);
    widen_tile(wide.v, stages[index].v);
    __syncthreads();
    return wide;
  }
}

// Prefill: grid (row tiles, KV heads, requests). Decode: grid (splits, KV heads, requests).
template <class T, class Cache, int kDim, bool kDecode>
__global__ void __launch_bounds__(kWarps * 32)
    attention_mma_kernel(const __grid_constant__ MmaArgs<T, Cache> a) {
  // Of a tile, for one warp at a time; where heads are wide, registers hold half of the scores.
  constexpr int kKeys = kDecode ? kTileKeys / kWarps : kDim <= 128 ? kTileKeys : kTileKeys / 2;
  constexpr int kWarpKeys = kDecode ? kKeys : kTileKeys;
  constexpr int kBlockRows = kDecode ? kWarpRows : kWarps * kWarpRows;
  DYN_SHARED(stages, Stage<Cache, kDim>);  // [2]; a widened one behind them
  const int warp = threadIdx.x / 32;
  Queries q{};
  q.request = static_cast<int>(blockIdx.z);
  q.kv_head = static_cast<int>(blockIdx.y);
  q.first_token = a.query_start[q.request];
  q.num_tokens = a.query_start[q.request + 1] - q.first_token;
  q.num_rows = q.num_tokens * a.group;
  q.seq_len = a.seq_lens[q.request];
  const int split = kDecode ? blockIdx.x : 0,
            block_row = kDecode ? 0 : static_cast<int>(blockIdx.x) * kBlockRows;
  if (block_row >= q.num_rows || (q.num_rows <= kWarpRows) != kDecode) return;

  WarpRows<T, kDim, kDim, kKeys> w;
  const int row0 = block_row + (kDecode ? 0 : warp * kWarpRows), key0 = kDecode ? warp * kKeys : 0;
  load_queries(w, a, q, row0);
  w.clear();

  const int first_position = q.seq_len - q.num_tokens + block_row / a.group;
  const int last_row = min(block_row + kBlockRows, q.num_rows) - 1;
  const int end = q.seq_len - q.num_tokens + last_row / a.group + 1;
  int tile = (a.window > 0 ? max(0, first_position - a.window + 1) : 0) / kTileKeys;
  int last_tile = (end + kTileKeys - 1) / kTileKeys;
  if constexpr (kDecode) {
    const int per_split = max(kTilesPerSplit, (last_tile - tile + a.splits - 1) / a.splits);
    tile += split * per_split;
    last_tile = min(last_tile, tile + per_split);
    if (tile >= last_tile) {
      if (warp == 0) store_rows(w, a, q, row0, split);
      return;
    }
  }
  using Copies = PageCopies<Cache, kTileKeys, kDim, kWarps * 32>;
  Copies copies(a.keys_of(q.request, q.kv_head), end,
                static_cast<int>(threadIdx.x) / Copies::kChunks,
                static_cast<int>(threadIdx.x) % Copies::kChunks);
  const std::uintptr_t to_values = a.value_distance();
  const auto copy_stage = [&](int t) {
    if (t < last_tile) {
      Stage<Cache, kDim>& stage = stages[t % 2];
      if constexpr (!kDecode) copies.look_up(t);
      copies.for_each(t, [&](int row, int chunk, const void* from, int bytes) {
        const int dim = chunk * kVecWidth<Cache>;
        async_copy<16>(stage.k.at(row, dim), from, bytes);
        async_copy<16>(stage.v.at(row, dim), static_cast<const char*>(from) + to_values, bytes);
      });
      if constexpr (kDecode) copies.look_up(t + 1);
    }
    async_copy_commit();
  };
  if constexpr (kDecode) copies.look_up(tile);  // a tile ahead, where there are registers for it
  copy_stage(tile);
  for (; tile < last_tile; ++tile) {
    copy_stage(tile + 1);
    async_copy_wait<1>();
    __syncthreads();
    const auto& stage = usable<T>(stages, tile % 2);
#pragma unroll 1
    for (int key = key0; key < key0 + kWarpKeys; key += kKeys) {
      w.score(stage.k, key);
      w.softmax(a.scale, a.soft_cap, tile * kTileKeys + key);
      w.accumulate(stage.v, key);
    }
    __syncthreads();  // before the stage is filled again
  }
  w.finish_sums();
  if constexpr (kDecode) {
    merge_warps(w, reinterpret_cast<float*>(stages));
    if (warp != 0) return;
  }
  store_rows(w, a, q, row0, split);
}

template <class T, class Cache, int kDim>
constexpr std::size_t kSharedBytes = 2 * sizeof(Stage<Cache, kDim>) +
                                     (std::is_same_v<T, Cache> ? 0 : sizeof(Stage<T, kDim>));

// f of the head size as a constant; of 0 where there is no kernel for it.
template <class F>
auto dispatch_head_size(std::int64_t dim, F f) {
  switch (dim) {
    case 64:
      return f(std::integral_constant<int, 64>{});
    case 96:
      return f(std::integral_constant<int, 96>{});
    case 128:
      return f(std::integral_constant<int, 128>{});
    case 256:
      return f(std::integral_constant<int, 256>{});
    default:
      return f(std::integral_constant<int, 0>{});
  }
}

// max_rows: of a request that these kernels have to do.
template <class T, class Cache, int kDim>
void launch_both(const MmaArgs<T, Cache>& a, int requests, int kv_heads, int max_rows,
                 StreamRef stream) {
  constexpr std::size_t shared = kSharedBytes<T, Cache, kDim>;
  const auto heads = static_cast<unsigned>(kv_heads), count = static_cast<unsigned>(requests);
  CUDA_CHECK(launch(attention_mma_kernel<T, Cache, kDim, true>,
                    dim3(static_cast<unsigned>(a.splits), heads, count), dim3(kWarps * 32), shared,
                    native(stream), a));
  if (max_rows <= kWarpRows) return;
  const auto tiles =
      static_cast<unsigned>((max_rows + kWarps * kWarpRows - 1) / (kWarps * kWarpRows));
  CUDA_CHECK(launch(attention_mma_kernel<T, Cache, kDim, false>, dim3(tiles, heads, count),
                    dim3(kWarps * 32), shared, native(stream), a));
}

template <class T, class Cache>
void launch_mma(const AttentionArgs& args, int most_rows, SplitScratch scratch, StreamRef stream) {
  const std::int64_t heads = args.q.extent(1), kv_heads = args.k_cache.extent(2),
                     dim = args.k_cache.extent(3);
  const auto group = static_cast<int>(heads / kv_heads);
  const int max_rows = args.max_query_len * group;
  const int keys =
      args.window > 0 ? std::min(args.window + kTileKeys, args.max_seq_len) : args.max_seq_len;
  const std::int64_t room = scratch.floats / (args.q.extent(0) * heads * (dim + 2));
  // With longer requests in the batch the decode rows are the smaller part: they go unsplit.
  constexpr int kKeysPerSplit = kTilesPerSplit * kTileKeys;
  const std::int64_t wanted =
      max_rows <= kWarpRows ? (keys + kKeysPerSplit - 1) / kKeysPerSplit : 1;
  const int splits = count_splits(wanted, room, args.seq_lens.extent(0) * kv_heads);
  const MmaArgs<T, Cache> a(args, splits > 1 ? scratch.data : nullptr, splits);
  const auto requests = static_cast<int>(args.seq_lens.extent(0));
  dispatch_head_size(dim, [&](auto size) {
    if constexpr (size != 0)
      launch_both<T, Cache, size>(a, requests, static_cast<int>(kv_heads),
                                  std::min(max_rows, most_rows), stream);
  });
  if (splits > 1) merge_splits(args.out, args.sinks, scratch.data, splits, stream);
}

}  // namespace

bool attention_mma_supports(const AttentionArgs& args) {
  const DType dtype = args.q.dtype(), cache = args.k_cache.dtype();
  const bool fits = dispatch_head_size(args.k_cache.extent(3), [&](auto size) {
    if constexpr (size == 0) {
      return false;
    } else {
      using T = __nv_bfloat16;
      return shared_memory_limit() >= (cache == DType::fp8_e4m3
                                           ? kSharedBytes<T, __nv_fp8_e4m3, size>
                                           : kSharedBytes<T, T, size>);
    }
  });
  return fits && args.v_cache.extent(3) == args.k_cache.extent(3) &&
         (dtype == DType::bf16 || dtype == DType::f16) &&
         (cache == dtype || cache == DType::fp8_e4m3) && is_aligned(args.q) &&
         is_aligned(args.out) && is_aligned(args.k_cache) && is_aligned(args.v_cache) &&
         has_plain_pages(args.k_cache, args.v_cache);
}

void attention_mma(const AttentionArgs& args, int most_rows, SplitScratch scratch,
                   StreamRef stream) {
  if (args.q.extent(0) == 0) return;
  const auto launch_on = [&]<class T>(Type<T>) {
    if (args.k_cache.dtype() == DType::fp8_e4m3) {
      launch_mma<T, __nv_fp8_e4m3>(args, most_rows, scratch, stream);
    } else {
      launch_mma<T, T>(args, most_rows, scratch, stream);
    }
  };
  if (args.q.dtype() == DType::bf16) return launch_on(Type<__nv_bfloat16>{});
  launch_on(Type<__half>{});
}

}  // namespace quire::cuda
