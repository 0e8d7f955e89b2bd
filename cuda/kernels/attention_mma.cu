// Paged attention on tensor cores. The query heads of one KV head are packed into rows, so a tile
// of K and V is read once for all of them. Requests with at most 16 rows (decode) spread the keys
// of a tile over four warps and the context over blocks: bound by reading the cache. Others
// (prefill) give each warp 16 rows: bound by the tensor cores. With an fp8 cache the products are
// in f16; the scale of the keys is in that of the scores, the values' is the result's.

#include <algorithm>

#include "cuda/device/dependent.cuh"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/attention_merge.cuh"
#include "cuda/kernels/attention_rows.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

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

// Whether prefixes are read once: a warp's keys vary then, for which some leave no registers.
template <class T, class Cache, int kDim>
constexpr bool kHasUnits = kDim < 128 || (kDim == 128 && (std::is_same_v<T, Cache> ||
                                                          std::is_same_v<T, __nv_bfloat16>));

template <class Cache, int kDim, int kKeys>
struct Stage {
  KeyTile<Cache, kDim, kKeys> k, v;
};

// Grid (items, KV heads): prefill's are units of a request's rows, decode's parts. Where a block of
// decode has one request, its warps share the keys of a tile, and where it has a unit of several,
// they share its rows.
template <class T, class Cache, int kDim, bool kDecode>
__global__ void __launch_bounds__(kWarps * 32, kLeastBlocks<kDim, kDecode>)
    attention_mma_kernel(const __grid_constant__ MmaArgs<T, Cache> a) {
  release_next_kernel();
  if (kDecode && a.heads.q != nullptr) a.heads.prefetch_norms();
  await_previous_kernel();
  // Of a tile, for one warp at a time; where heads are wide, registers hold half of the scores.
  constexpr int kTile = kTileKeys<Cache, kDim, kDecode>;
  constexpr int kKeys = kDecode ? kTile / kWarps : kDim <= 128 ? kTile : kTile / 2;
  DYN_SHARED(stages, Stage<Cache, kDim, kTile>);  // [2]
  const int warp = threadIdx.x / 32, kv_head = static_cast<int>(blockIdx.y);
  const DecodePart* part = nullptr;
  if constexpr (kDecode) {
    part = &find_part<kWarps * 32>(a.work, static_cast<int>(blockIdx.x),
                                   [&](int entry) { return decode_load(a, entry, kTile); });
    if (part->place < 0) return;
    if (part->merged && part->part == 0 && threadIdx.x == 0) {
      const int request = part->entry - a.prefix.groups;
      (request < 0 ? a.cut_of_unit(part->entry, part->unit, kv_head)
                   : a.cut_of_request(request, kv_head)) = {part->place, part->parts};
    }
  }
  const PromptPart* unit = nullptr;
  if constexpr (!kDecode) {
    unit = &find_prompt_part<kWarps * 32>(a.prompts, static_cast<int>(blockIdx.x),
                                          [&](int entry) { return prompt_load(a, entry); });
    if (unit->entry < 0) return;
  }
  // Made anew behind the loop over tiles, whose registers it would take.
  const auto queries = [&] {
    if constexpr (kDecode) return Queries(a, *part, kv_head);
    return Queries(a, unit->entry, kv_head);
  };
  const Queries q = queries();
  const int block_row = kDecode ? 0 : unit->unit * kUnitRows;
  constexpr bool kUnits = kDecode && kHasUnits<T, Cache, kDim>;
  const bool by_rows = !kDecode || (kUnits && q.member >= 0);

  WarpRows<T, Cache, kDim, kKeys> w;
  const int row0 = block_row + (by_rows ? warp * kWarpRows : 0);
  // The keys of a tile that are this warp's; not in registers, which the loop over tiles needs.
  SHARED(first_key, int[kWarps]);
  if (kUnits && threadIdx.x % 32 == 0)
    first_key[warp] = !by_rows ? warp * kKeys : row0 >= q.num_rows ? kTile : 0;
  if constexpr (!kDecode) {
    load_queries(w, a, q, row0);
    w.clear();
  }

  const int last_row = min(block_row + kUnitRows, q.num_rows) - 1;
  const int end = q.position(a.token_of(last_row)) + 1;
  const int begin = q.first_key(a, block_row);
  int tile = begin / kTile;
  int last_tile = (end + kTile - 1) / kTile;
  if constexpr (kDecode) {
    if (q.member < 0 && a.prefix.groups > 0) tile += a.prefix.keys_of(q.request) / kTile;
    if (part->parts > 1) {
      tile += part->part * part->tiles;
      last_tile = min(last_tile, tile + part->tiles);
    }
  }
  constexpr int kLanes = kRowLanes<Cache, kDim>;
  using Copies = PageCopies<Cache, kTile, kDim, kWarps * 32, kLanes, kDecode && sizeof(Cache) == 1>;
  Copies copies(a.keys_of(q.request, q.kv_head), begin, end, static_cast<int>(threadIdx.x) / kLanes,
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
  if constexpr (kDecode) {
    copies.look_up(tile);  // a tile ahead, where there are registers for it
    T* prepared = nullptr;
    const bool first_is_old = a.heads.q == nullptr || (tile + 1) * kTile <= q.first_new_key();
    if (first_is_old) copy_stage(tile);  // beside the heads
    if (a.heads.q != nullptr) {
      // Queries lie where the second tile will.
      static_assert(sizeof(T) * (kUnits ? kUnitRows : kWarpRows) * kPreparedStride<kDim> <=
                    sizeof(stages[0]));
      prepared = reinterpret_cast<T*>(&stages[(tile + 1) % 2]);
      prepare_block<kDim>(a, q, tile * kTile, last_tile * kTile, prepared);
      __syncthreads();
    }
    load_queries(w, a, q, row0, prepared);
    if (!first_is_old) copy_stage(tile);
    if (prepared != nullptr) __syncthreads();
    w.clear();
  } else {
    copy_stage(tile);
  }
  for (; tile < last_tile; ++tile) {
    copy_stage(tile + 1);
    async_copy_wait<1>();
    __syncthreads();
    const auto& stage = stages[tile % 2];
    const bool has_all_keys = !kDecode || (kUnits && part->entry < a.prefix.groups);
    int key = kUnits ? first_key[warp] : kDecode ? warp * kKeys : 0;
#pragma unroll 1
    while (key < kTile) {
      w.score(stage.k, key);
      w.softmax(a.soft_cap, tile * kTile + key);
      w.accumulate(stage.v, key);
      key = has_all_keys ? key + kKeys : kTile;
    }
    __syncthreads();  // before the stage is filled again
  }
  w.finish_sums();
  if constexpr (kDecode) {
    const Queries rows = queries();
    const bool is_unit = kUnits && rows.member >= 0;
    if (!is_unit) merge_warps(w, reinterpret_cast<float*>(stages));
    if (part->merged) {
      if (is_unit || warp == 0)
        store_parts(w, a, rows, is_unit ? warp * kWarpRows : 0,
                    a.partials_of(part->place, kv_head));
      return merge_complete<kDim>(a, rows, *part, kTile);
    }
    if (warp == 0) store_rows(w, a, rows, 0);
  } else {
    store_rows(w, a, q, row0);
  }
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

template <class T, class Cache, int kDim>
void launch_both(MmaArgs<T, Cache> a, int kv_heads, std::int64_t units, StreamRef stream) {
  const auto heads = static_cast<unsigned>(kv_heads);
  a.work.least = kKeysPerPart / kTileKeys<Cache, kDim, true>;
  CUDA_CHECK(launch(attention_mma_kernel<T, Cache, kDim, true>,
                    dim3(static_cast<unsigned>(a.items), heads), dim3(kWarps * 32),
                    kSharedBytes<Cache, kDim, true>, native(stream), a));
  if (units == 0) return;
  CUDA_CHECK(launch(attention_mma_kernel<T, Cache, kDim, false>,
                    dim3(static_cast<unsigned>(units), heads), dim3(kWarps * 32),
                    kSharedBytes<Cache, kDim, false>, native(stream), a));
}

// Units of rows are for keys that all of them see. False: nothing is read once for several
// requests.
bool plan_prefixes(PrefixArgs& p, const AttentionArgs& args) {
  const SharedPrefixes& shared = args.shared;
  const auto group = static_cast<int>(args.q.extent(1) / args.k_cache.extent(2));
  if (shared.longest == 0 || shared.longest * group > kWarpRows || args.window > 0 ||
      args.k_cache.extent(3) > 128 ||
      (args.q.dtype() == DType::f16 && args.k_cache.dtype() == DType::fp8_e4m3))
    return false;
  const auto ints = [](const TensorView& view) {
    return static_cast<const std::int32_t*>(view.data());
  };
  const int split_rows = std::min(args.max_query_len * group, kWarpRows);
  const int groups = static_cast<int>(shared.starts.extent(0)) - 1, unit_tokens = kUnitRows / group;
  p = {.groups = groups,
       .unit_tokens = unit_tokens,
       .width = (kUnitRows + split_rows - 1) / split_rows,
       .units = groups + static_cast<int>(shared.members.extent(0)) / unit_tokens,
       .starts = ints(shared.starts),
       .members = ints(shared.members),
       .places = ints(shared.places),
       .lengths = ints(shared.lengths)};
  return true;
}

// How the decode's work is cut, with partial results in the scratch: first where they are, then
// what of them fits. How requests are cut must not follow max_seq_len; what it says is whether any
// is.
template <class T, class Cache>
void plan_parts(MmaArgs<T, Cache>& a, const AttentionArgs& args, const SplitScratch& scratch) {
  const std::int64_t count = args.seq_lens.extent(0), kv_heads = args.k_cache.extent(2);
  a.work = {static_cast<int>(count), 0, 0};
  a.items = static_cast<int>(count);
  // That the tiles of a request may cover: a window's begin and end anywhere in one.
  const std::int64_t keys =
      args.window > 0 ? std::min(args.window + args.max_query_len + kLongestTile, args.max_seq_len)
                      : args.max_seq_len;
  const std::int64_t longest = (keys + kKeysPerPart - 1) / kKeysPerPart;
  if (longest <= 1 || count * kv_heads > scratch.counters) return;
  const std::int64_t wanted =
      kPartsPerProcessor * processor_count() * variants.parts_percent / 100 / kv_heads;
  const auto cut_floats = [&] { return (2 * kv_heads * (a.prefix.units + count) + 3) / 4 * 4; };
  const auto room = [&] { return (scratch.floats - cut_floats()) / (kv_heads * a.place_floats()); };
  std::int64_t units = count, extra = fitting_extra(count, room(), wanted),
               places = most_places(count, extra);
  if (plan_prefixes(a.prefix, args)) {
    // Whatever is cut may be units of prefixes, whose parts take more places.
    const std::int64_t least = count + std::int64_t{a.prefix.units} * a.prefix.width,
                       fits = (room() - least) / (1 + a.prefix.width);
    if (fits > 0 && 4 * fits >= wanted) {
      units += a.prefix.units;
      extra = std::min(fits, wanted);
      places = least + extra * (1 + a.prefix.width);
    } else {
      a.prefix = {};
    }
  }
  if (extra <= 0) {
    a.prefix = {};
    return;
  }
  a.work.entries += a.prefix.groups;
  a.work.extra = static_cast<int>(extra);
  a.items = static_cast<int>(std::min(units + extra, units * longest));
  a.places = static_cast<int>(places);
  a.cuts = reinterpret_cast<int2*>(scratch.data);
  a.partials = scratch.data + cut_floats();
  a.arrived = scratch.arrived;
}

// heads: null: they are prepared.
template <class T, class Cache>
void launch_mma(const AttentionArgs& args, const HeadArgs* heads, int most_rows,
                SplitScratch scratch, StreamRef stream) {
  const auto kv_heads = static_cast<int>(args.k_cache.extent(2));
  MmaArgs<T, Cache> a(args);
  if (heads != nullptr) a.heads = NewHeads<T, Cache>(*heads);
  const std::int64_t max_rows = std::int64_t{args.max_query_len} * a.group;
  a.most_rows = most_rows;
  a.split_rows = static_cast<int>(std::min<std::int64_t>(max_rows, kWarpRows));
  a.prompts.entries = static_cast<int>(args.seq_lens.extent(0));
  plan_parts(a, args, scratch);
  const std::int64_t units = most_prompt_units(
      {.rows = args.q.extent(0) * a.group,
       .requests = args.seq_lens.extent(0),
       .longest = std::min<std::int64_t>(max_rows, most_rows)},
      {.rows = kUnitRows, .least_of_request = kWarpRows + 1});
  dispatch_head_size(args.k_cache.extent(3), [&](auto size) {
    if constexpr (size != 0) launch_both<T, Cache, size>(a, kv_heads, units, stream);
  });
}

void launch_any(const AttentionArgs& args, const HeadArgs* heads, int most_rows,
                SplitScratch scratch, StreamRef stream) {
  if (args.q.extent(0) == 0) return;
  const auto launch_on = [&]<class T>(Type<T>) {
    if (args.k_cache.dtype() == DType::fp8_e4m3) {
      launch_mma<T, __nv_fp8_e4m3>(args, heads, most_rows, scratch, stream);
    } else {
      launch_mma<T, T>(args, heads, most_rows, scratch, stream);
    }
  };
  if (args.q.dtype() == DType::bf16) return launch_on(Type<__nv_bfloat16>{});
  launch_on(Type<__half>{});
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
  launch_any(args, nullptr, most_rows, scratch, stream);
}

bool attention_mma_prepares(const HeadArgs& heads, const AttentionArgs& args) {
  const std::int64_t group = args.q.extent(1) / args.k_cache.extent(2);
  return args.max_query_len * group <= kMmaDecodeRows && attention_mma_supports(args) &&
         new_heads_suit(heads);
}

void attention_mma_new(const HeadArgs& heads, const AttentionArgs& args, SplitScratch scratch,
                       StreamRef stream) {
  launch_any(args, &heads, kMmaDecodeRows, scratch, stream);
}

}  // namespace quire::cuda
