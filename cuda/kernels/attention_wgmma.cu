// Paged prefill attention on Hopper's warpgroup products, after FlashAttention-3 (Shah et al.,
// 2024): the scores of one tile of keys are computed while the weighted values of the tile before
// are, and while another warpgroup has its softmax. The query heads of one KV head are packed into
// rows; a warpgroup has 64 of them. A warp of its own brings keys and values, three tiles deep, by
// boxes of one page each, through the block table. Of few rows behind a long context a block has a
// part of the keys, and the one that ends last merges the results (prompt_work.cuh).

#include <algorithm>

#include "cuda/kernels/attention.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/wgmma_attend.cuh"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

// How often the device is filled with parts of units where these fill it themselves.
constexpr int kWaves = 4;
static_assert(kWidenedRows == kBlockRows);

// One warp: the keys of tile t, then the values of tile t − 1. Lane i looks up the tile's box i;
// one lane starts all of them. Boxes that nobody sees do not come.
template <class T, int kDim>
__device__ __forceinline__ void bring_tiles(const WgmmaArgs<T>& a, int entry, int kv_head,
                                            const Span& span, Stages<T, kDim>& stages) {
  constexpr int kStages = Stages<T, kDim>::kStages;
  using Tile = SwizzledTile<T, kDim>;
  constexpr int kKeys = Tile::kRows;
  if (is_elected()) {
    prefetch_map(a.k_map);
    prefetch_map(a.v_map);
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, boxes = kKeys / a.box_keys;
  const KeyPages pages(a, entry);
  const auto look_up = [&](int t) {
    const int key = t * kKeys + lane * a.box_keys, page = a.block_size(key);
    const bool comes = lane < boxes && key < span.end_key && key + a.box_keys > span.first_key;
    return int2{comes ? pages[page] : -1, key - page * a.block_size.divisor};
  };
  const auto bring = [&](Tile& tile, RingBarriers<kStages>& ring, const CUtensorMap& map,
                         Turn<kStages> turn, int2 mine) {
    await_phase(ring.empty[turn.stage], turn.parity ^ 1);
    const unsigned coming = __ballot_sync(0xffffffffu, mine.x >= 0);
    if (is_elected())
      arrive_expecting(ring.full[turn.stage],
                       __popc(coming) * a.box_keys * Tile::kCount * kPanelBytes);
#pragma unroll 1
    for (int i = 0; i < boxes; ++i) {
      const int page = __shfl_sync(0xffffffffu, mine.x, i),
                token = __shfl_sync(0xffffffffu, mine.y, i);
      if (page < 0 || !is_elected()) continue;
#pragma unroll
      for (int panel = 0; panel < Tile::kCount; ++panel)
        load_box(tile.panel[panel][i * a.box_keys], map, ring.full[turn.stage],
                 panel * kPanelDims<T>, kv_head, token, page);
    }
  };
  Turn<kStages> turn, turn_before;
  int2 place = look_up(span.begin), place_before{};
  for (int t = span.begin; t <= span.tiles; ++t) {
    const int2 next = look_up(t + 1);
    if (t < span.tiles) bring(stages.k[turn.stage], stages.k_ready, a.k_map, turn, place);
    if (t > span.begin)
      bring(stages.v[turn_before.stage], stages.v_ready, a.v_map, turn_before, place_before);
    place_before = place;
    place = next;
    turn_before = turn;
    turn.advance();
  }
}

// Behind the stores of a part's results by all that attend: whoever brings a unit's last part
// merges them.
template <int kDim, class T>
__device__ __forceinline__ void merge_if_last(const WgmmaArgs<T>& a, const Request& r, int kv_head,
                                              const PromptPart& part) {
  const int place = a.place_of(part, kv_head);
  if (!brings_last(a.arrived + place, part.parts)) return;
  const int first = part.unit * kBlockRows, rows = min(kBlockRows, r.num_rows - first);
  constexpr int kTogether = kAttending / kMergeLanes;
  for (int row0 = 0; row0 < rows; row0 += kTogether) {
    const int row = row0 + static_cast<int>(threadIdx.x) / kMergeLanes;
    const bool there = row < rows;
    const int of_request = there ? first + row : 0, token = of_request / a.group,
              head = kv_head * a.group + of_request - token * a.group;
    const PartRun runs[1] = {
        {a.partials_of(place) + row * part_floats(kDim), a.place_floats, part.parts}};
    merge_runs<kDim>(runs, there, a.sinks != nullptr ? a.sinks + head : nullptr,
                     [&](const MergedRow<kDim>& merged) {
                       merged.store(&a.out(r.first_token + token, head, 0), 1.f);
                     });
  }
}

// Grid (parts, KV heads).
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    attention_wgmma_kernel(const __grid_constant__ WgmmaArgs<T> a) {
  release_next_kernel();
  await_previous_kernel();
  if constexpr (!kHasWarpgroups) return;
  DYN_SHARED(stages, Stages<T, kDim>);
  const int kv_head = static_cast<int>(blockIdx.y);
  const PromptPart& part =
      find_prompt_part<kThreads>(a.work, static_cast<int>(blockIdx.x),
                                 [&](int entry) { return a.template load_of<kDim>(entry); });
  if (part.entry < 0) return;
  const Request r(a, a.request_of(part.entry));
  const int block_row = part.unit * kBlockRows;
  const int first_position = r.position(block_row, a.group),
            last_position = r.position(block_row + kBlockRows - 1, a.group);
  const int first_key = a.seen_from(first_position);
  const TileRange range(part, first_key / kTileKeys<kDim>, last_position / kTileKeys<kDim> + 1);
  const Span span{first_key,      last_position + 1, a.seen_from(last_position),
                  first_position, range.first,       range.last};
  if (threadIdx.x == 0) {
    stages->init();
    fence_async_proxy();
  }
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == kGroups) {
    give_registers<kRegistersOfBringing>();
    if (threadIdx.x < kAttending + 32) bring_tiles(a, part.entry, kv_head, span, *stages);
  } else {
    take_registers<kRegistersOfAttending>();
    const int row0 = group * kGroupRows;
    GroupRows<T, kDim> rows;
    rows.load(a, r, kv_head, block_row + row0, stages->q[group]);
    if (span.begin < span.tiles) attend(a, span, *stages, rows);
    rows.finish_sums();
    if (part.parts == 1) return rows.store(a, r, kv_head, block_row + row0);
    rows.store_part(a.partials_of(a.place_of(part, kv_head) + part.part), r.num_rows - block_row,
                    row0, a.value_scale);
    merge_if_last<kDim>(a, r, kv_head, part);
  }
}

// What of the partial results has room. How units are cut must not follow max_seq_len; what it says
// is whether any is.
template <class T>
void plan_parts(WgmmaArgs<T>& a, const AttentionArgs& args, const SplitScratch& scratch) {
  const std::int64_t kv_heads = args.k_cache.extent(2),
                     rows = std::min<std::int64_t>(kBlockRows, args.max_query_len * a.group);
  const std::int64_t floats = rows * part_floats(static_cast<int>(args.k_cache.extent(3)));
  // A window's tiles begin and end anywhere in it.
  const int keys =
      args.window > 0 ? std::min(args.window + kBlockRows, args.max_seq_len) : args.max_seq_len;
  if (keys / tile_keys(args.k_cache.extent(3)) + 2 < 2 * kLeastTiles) return;
  const std::int64_t few = processor_count() / kv_heads,
                     room = std::min(scratch.floats / (kv_heads * floats),
                                     scratch.counters / kv_heads);
  const auto parts = [&](std::int64_t wanted) {
    return static_cast<int>(std::min(wanted * variants.parts_percent / 100, room));
  };
  a.work.few = parts(few);
  a.work.many = parts(kWaves * few);
  a.place_floats = static_cast<int>(floats);
  a.partials = scratch.data;
  a.arrived = scratch.arrived;
}

// Units of requests with so many rows, at most.
template <class T>
std::int64_t most_units(const WgmmaArgs<T>& a, const AttentionArgs& args) {
  if (a.widened.count > 0) return a.widened.units;
  return most_prompt_units({.rows = args.q.extent(0) * a.group,
                            .requests = a.work.entries,
                            .longest = std::int64_t{args.max_query_len} * a.group},
                           {.rows = kBlockRows, .least_of_request = a.least_rows});
}

template <int kDim, class T>
void launch_parts(const WgmmaArgs<T>& a, std::int64_t parts, StreamRef stream) {
  CUDA_CHECK(launch(attention_wgmma_kernel<T, kDim>,
                    dim3(static_cast<unsigned>(parts), static_cast<unsigned>(a.k_cache.extent[2])),
                    dim3(kThreads), sizeof(Stages<T, kDim>), native(stream), a));
}

template <class T>
void launch_wgmma(const AttentionArgs& args, int least_rows, const WidenedRequests& widened,
                  const SplitScratch& scratch, StreamRef stream) {
  WgmmaArgs<T> a(args, least_rows, widened);
  plan_parts(a, args, scratch);
  const std::int64_t units = most_units(a, args);
  if (units == 0) return;
  const std::int64_t parts = units + (units <= a.work.few ? a.work.few : a.work.many);
  if (args.k_cache.extent(3) == 64) return launch_parts<64>(a, parts, stream);
  if (args.k_cache.extent(3) == 96) return launch_parts<96>(a, parts, stream);
  if (args.k_cache.extent(3) == 128) return launch_parts<128>(a, parts, stream);
  launch_parts<256>(a, parts, stream);
}

}  // namespace

bool attention_wgmma_supports(const AttentionArgs& args) {
  const std::int64_t dim = args.k_cache.extent(3);
  return uses_warpgroups() && (dim == 64 || dim == 96 || dim == 128 || dim == 256) &&
         args.k_cache.dtype() == args.q.dtype() && args.scale * args.cache_scale.k > 0.f &&
         fits_tensor_map(args.k_cache) && fits_tensor_map(args.v_cache) &&
         tensor_maps_unavailable().empty();
}

void attention_wgmma(const AttentionArgs& args, int least_rows, SplitScratch scratch,
                     StreamRef stream, const WidenedRequests& widened) {
  if (args.q.dtype() == DType::bf16)
    return launch_wgmma<__nv_bfloat16>(args, least_rows, widened, scratch, stream);
  launch_wgmma<__half>(args, least_rows, widened, scratch, stream);
}

}  // namespace quire::cuda
