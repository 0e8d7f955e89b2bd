// Paged attention on tensor cores. The query heads of one KV head are packed into rows, so a tile
// of K and V is read once for all of them. Requests with at most 16 rows (decode) spread the keys
// of a tile over four warps and the context over blocks: bound by reading the cache. Others
// (prefill) give each warp 16 rows: bound by the tensor cores. With an fp8 cache the products are
// in f16; the scale of the keys is in that of the scores, the values' is the result's.

#include <algorithm>

#include "cuda/device/dependent.cuh"
#include "cuda/device/fp8.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/attention_mma.cuh"
#include "cuda/kernels/attention_tile.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/merge_row.cuh"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kKeysPerPart = 256;       // below this a part of a context costs more than it brings
constexpr int kPartsPerProcessor = 16;  // three of them at a time

// Keys of a tile. In decode those of fp8 are twice as many where registers allow: as many bytes for
// what a tile costs besides.
template <class Cache, int kDim, bool kDecode>
constexpr int kTileKeys = kDecode && sizeof(Cache) == 1 && kDim <= 128 ? 128 : 64;
constexpr int kLongestTile = 128;
// Of threads that share a row of it; of fp8 each has two chunks, for half of the addresses.
template <class Cache, int kDim>
constexpr int kRowLanes = kDim / kVecWidth<Cache> / (sizeof(Cache) == 1 ? 2 : 1);
// On a multiprocessor, as its shared memory allows.
template <int kDim, bool kDecode>
constexpr int kLeastBlocks = kDim <= (kDecode ? 128 : 96) ? 3 : 1;

template <class Cache, int kDim, int kKeys>
struct Stage {
  KeyTile<Cache, kDim, kKeys> k, v;
};

// Queries of f16: themselves. Of bf16 beside fp8 each row times a power of two, as large as f16
// holds, so that none of it is lost.
template <class T, int kPairs>
__device__ __forceinline__ float to_f16(std::uint32_t (&pairs)[kPairs]) {
  if constexpr (std::is_same_v<T, __half>) return 1.f;
  constexpr int kLargest = 14;  // the exponent of a row's largest
  const auto low = [](std::uint32_t pair) { return __uint_as_float(pair << 16); };
  const auto high = [](std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); };
  float top = 0.f;
#pragma unroll
  for (const std::uint32_t pair : pairs)
    top = fmaxf(top, fmaxf(fabsf(low(pair)), fabsf(high(pair))));
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  const unsigned exponent = max(__float_as_uint(top) >> 23, 64u);  // above the bias of 127
  const float up = __uint_as_float((254 + kLargest - exponent) << 23);
#pragma unroll
  for (std::uint32_t& pair : pairs) pair = pack<__half>(low(pair) * up, high(pair) * up);
  return __uint_as_float((exponent - kLargest) << 23);
}

template <class T, class Cache, int kDim, int kKeys>
__device__ void load_queries(WarpRows<T, Cache, kDim, kKeys>& w, const MmaArgs<T, Cache>& a,
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
    std::uint32_t pairs[kDim / 8];
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const T* from = &a.q(q.first_token + token, head, w.dim_of(n));
      pairs[n] = in_range ? *reinterpret_cast<const std::uint32_t*>(from) : 0u;
    }
    w.scale[h] = a.scale;
    if constexpr (!std::is_same_v<T, Cache>) w.scale[h] *= to_f16<T>(pairs);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) w.q[n / 2].r[h + n % 2 * 2] = pairs[n];
  }
}

// Values of the two rows of a lane, finished or, place ≥ 0, as a part's partial result.
template <class T, class Cache, int kDim, int kKeys>
__device__ void store_rows(WarpRows<T, Cache, kDim, kKeys>& w, const MmaArgs<T, Cache>& a,
                           const Queries& q, int row0, int place) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + lane / 4 + 8 * h;
    if (row >= q.num_rows) continue;
    const int token = q.first_token + row / a.group, head = q.kv_head * a.group + row % a.group;
    SoftmaxState& s = w.state[h];
    if (place >= 0) {
      float* to = a.partials_of(place, q.kv_head, row);
      if (s.sum > 0.f) {  // a part without keys that the row sees has no values either
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          const float2 pair = w.pair_of(n, h);
          to[w.dim_of(n)] = pair.x * a.value_scale;
          to[w.dim_of(n) + 1] = pair.y * a.value_scale;
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
      const float2 pair = w.pair_of(n, h);
      *reinterpret_cast<std::uint32_t*>(&a.out(token, head, w.dim_of(n))) =
          pack<T>(finished(pair.x), finished(pair.y));
    }
  }
}

// Decode: four warps hold partial results of the same 16 rows; the first warp gets their sum. The
// tiles that lay in shared memory have been read: the loop over them ends with a barrier.
template <class T, class Cache, int kDim, int kKeys>
__device__ void merge_warps(WarpRows<T, Cache, kDim, kKeys>& w, float* shared) {
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

// Prefill: grid (row tiles, KV heads, requests). Decode: grid (items, KV heads).
template <class T, class Cache, int kDim, bool kDecode>
__global__ void __launch_bounds__(kWarps * 32, kLeastBlocks<kDim, kDecode>)
    attention_mma_kernel(const __grid_constant__ MmaArgs<T, Cache> a) {
  release_next_kernel();
  await_previous_kernel();
  // Of a tile, for one warp at a time; where heads are wide, registers hold half of the scores.
  constexpr int kTile = kTileKeys<Cache, kDim, kDecode>;
  constexpr int kKeys = kDecode ? kTile / kWarps : kDim <= 128 ? kTile : kTile / 2;
  constexpr int kWarpKeys = kDecode ? kKeys : kTile;
  constexpr int kBlockRows = kDecode ? kWarpRows : kWarps * kWarpRows;
  DYN_SHARED(stages, Stage<Cache, kDim, kTile>);  // [2]
  const int warp = threadIdx.x / 32;
  DecodePart part{-1, static_cast<int>(blockIdx.z), 0, 1, 0};
  if constexpr (kDecode) {
    DecodeWork work = a.work;
    work.least /= kTile;
    part = find_part<kWarps * 32>(work, static_cast<int>(blockIdx.x),
                                  [&](int request) { return decode_tiles(a, request, kTile); });
    if (part.place < 0) return;
  }
  const Queries q(a, part.request, static_cast<int>(blockIdx.y));
  const int block_row = kDecode ? 0 : static_cast<int>(blockIdx.x) * kBlockRows;
  if (!kDecode && (block_row >= q.num_rows || q.num_rows <= kWarpRows)) return;
  if (kDecode && a.cuts != nullptr && part.part == 0 && q.kv_head == 0 && threadIdx.x == 0)
    a.cuts[q.request] = {part.place, part.parts};

  WarpRows<T, Cache, kDim, kKeys> w;
  const int row0 = block_row + (kDecode ? 0 : warp * kWarpRows), key0 = kDecode ? warp * kKeys : 0;
  load_queries(w, a, q, row0);
  w.clear();

  const int last_row = min(block_row + kBlockRows, q.num_rows) - 1;
  const int end = q.seq_len - q.num_tokens + last_row / a.group + 1;
  int tile = q.first_tile(a, block_row, kTile);
  int last_tile = (end + kTile - 1) / kTile;
  if constexpr (kDecode) {
    if (part.parts > 1) {
      tile += part.part * part.tiles;
      last_tile = min(last_tile, tile + part.tiles);
    }
  }
  constexpr int kLanes = kRowLanes<Cache, kDim>;
  using Copies = PageCopies<Cache, kTile, kDim, kWarps * 32, kLanes>;
  Copies copies(a.keys_of(q.request, q.kv_head), end, static_cast<int>(threadIdx.x) / kLanes,
                static_cast<int>(threadIdx.x) % kLanes);
  const std::uintptr_t to_values = a.value_distance();
  const auto copy_stage = [&](int t) {
    if (t < last_tile) {
      auto& stage = stages[t % 2];
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
    const auto& stage = stages[tile % 2];
#pragma unroll 1
    for (int key = key0; key < key0 + kWarpKeys; key += kKeys) {
      w.score(stage.k, key);
      w.softmax(a.soft_cap, tile * kTile + key);
      w.accumulate(stage.v, key);
    }
    __syncthreads();  // before the stage is filled again
  }
  w.finish_sums();
  if constexpr (kDecode) {
    merge_warps(w, reinterpret_cast<float*>(stages));
    if (warp != 0) return;
  }
  store_rows(w, a, q, row0, part.parts > 1 ? part.place : -1);
}

template <class Cache, int kDim, bool kDecode>
constexpr std::size_t kSharedBytes = 2 *
                                     sizeof(Stage<Cache, kDim, kTileKeys<Cache, kDim, kDecode>>);

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

// One block per (row, KV head, request): of the requests that were cut.
template <class T, class Cache>
__global__ void __launch_bounds__(kMergeThreads)
    merge_requests_kernel(const __grid_constant__ MmaArgs<T, Cache> a) {
  release_next_kernel();
  await_previous_kernel();
  const int request = static_cast<int>(blockIdx.z), kv_head = static_cast<int>(blockIdx.y),
            row = static_cast<int>(blockIdx.x);
  const int first = a.query_start[request],
            num_rows = (a.query_start[request + 1] - first) * a.group;
  if (row >= num_rows || num_rows > kWarpRows) return;
  const int2 cuts = a.cuts[request];
  if (cuts.y == 1) return;
  merge_row(a.out, first + row / a.group, kv_head * a.group + row % a.group, a.sinks, cuts.y,
            [&](int part) { return a.partials_of(cuts.x + part, kv_head, row); });
}

// max_rows: of a request that these kernels have to do.
template <class T, class Cache, int kDim>
void launch_both(const MmaArgs<T, Cache>& a, int requests, int kv_heads, int max_rows,
                 StreamRef stream) {
  const auto heads = static_cast<unsigned>(kv_heads), count = static_cast<unsigned>(requests);
  CUDA_CHECK(launch(attention_mma_kernel<T, Cache, kDim, true>,
                    dim3(static_cast<unsigned>(a.items), heads), dim3(kWarps * 32),
                    kSharedBytes<Cache, kDim, true>, native(stream), a));
  if (a.cuts != nullptr) {
    CUDA_CHECK(launch(merge_requests_kernel<T, Cache>,
                      dim3(static_cast<unsigned>(a.split_rows), heads, count), dim3(kMergeThreads),
                      0, native(stream), a));
  }
  if (max_rows <= kWarpRows) return;
  const auto tiles =
      static_cast<unsigned>((max_rows + kWarps * kWarpRows - 1) / (kWarps * kWarpRows));
  CUDA_CHECK(launch(attention_mma_kernel<T, Cache, kDim, false>, dim3(tiles, heads, count),
                    dim3(kWarps * 32), kSharedBytes<Cache, kDim, false>, native(stream), a));
}

template <class T, class Cache>
void launch_mma(const AttentionArgs& args, int most_rows, SplitScratch scratch, StreamRef stream) {
  const std::int64_t heads = args.q.extent(1), kv_heads = args.k_cache.extent(2),
                     dim = args.k_cache.extent(3);
  const auto group = static_cast<int>(heads / kv_heads);
  const int max_rows = args.max_query_len * group;
  // That the tiles of a request may cover: a window's begin and end anywhere in one.
  const std::int64_t keys =
      args.window > 0 ? std::min(args.window + args.max_query_len + kLongestTile, args.max_seq_len)
                      : args.max_seq_len;
  MmaArgs<T, Cache> a(args);
  a.split_rows = std::min(max_rows, kWarpRows);
  const std::int64_t count = args.seq_lens.extent(0);
  // Of the scratch: a pair of numbers a request, then what partial results fit. How requests are
  // cut must not follow max_seq_len; what it says is whether any is.
  const std::int64_t cuts = 2 * count;
  const std::int64_t room = (scratch.floats - cuts) / (kv_heads * a.split_rows * (dim + 2));
  const std::int64_t extra =
      fitting_extra(count, room, kPartsPerProcessor * processor_count() / kv_heads);
  const std::int64_t longest = (keys + kKeysPerPart - 1) / kKeysPerPart;
  a.work = {static_cast<int>(count), 0, kKeysPerPart};
  a.items = static_cast<int>(count);
  if (extra > 0 && longest > 1) {
    a.work.extra = static_cast<int>(extra);
    a.items = static_cast<int>(std::min(count + extra, count * longest));
    a.places = static_cast<int>(most_places(count, extra));
    a.cuts = reinterpret_cast<int2*>(scratch.data);
    a.partials = scratch.data + cuts;
  }
  const auto requests = static_cast<int>(args.seq_lens.extent(0));
  dispatch_head_size(dim, [&](auto size) {
    if constexpr (size != 0)
      launch_both<T, Cache, size>(a, requests, static_cast<int>(kv_heads),
                                  std::min(max_rows, most_rows), stream);
  });
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
                                           ? kSharedBytes<__nv_fp8_e4m3, size, true>
                                           : kSharedBytes<T, size, true>);
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
