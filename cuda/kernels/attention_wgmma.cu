// Paged prefill attention on Hopper's warpgroup products, after FlashAttention-3 (Shah et al.,
// 2024): the scores of one tile of keys are computed while the weighted values of the tile before
// are, and while another warpgroup has its softmax. The query heads of one KV head are packed into
// rows; a warpgroup has 64 of them. A warp of its own brings keys and values, three tiles deep, by
// boxes of one page each, through the block table.

#include "cuda/kernels/attention.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/wgmma_tile.cuh"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

// Barriers of roles.cuh: where all that attend meet, and from kFirstTurn on the groups' turns.
constexpr int kAllAttend = 1, kFirstTurn = 2;

// The keys that a block's rows see, and their tiles.
struct Span {
  int first_key, end_key;  // seen by any of them
  int all_from, all_to;    // by all: first and last
  int begin, tiles;
};

template <class T, int kDim>
__device__ __forceinline__ void init_rings(Stages<T, kDim>& stages) {
  for (int s = 0; s < kStages; ++s) {
    for (RingBarriers* ring : {&stages.k_ready, &stages.v_ready}) {
      init_barrier(ring->full[s], 1);
      init_barrier(ring->empty[s], kAttending / 32);
    }
  }
  fence_async_proxy();
}

// One warp: the keys of tile t, then the values of tile t − 1. Lane i looks up the tile's box i;
// one lane starts all of them. Boxes that nobody sees do not come.
template <class T, int kDim>
__device__ __forceinline__ void bring_tiles(const WgmmaArgs<T>& a, int request, int kv_head,
                                            const Span& span, Stages<T, kDim>& stages) {
  if (is_elected()) {
    prefetch_map(a.k_map);
    prefetch_map(a.v_map);
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, boxes = kTileKeys / a.box_keys;
  const std::int32_t* table = a.block_table.data + request * a.block_table.stride[0];
  const auto look_up = [&](int t) {
    const int key = t * kTileKeys + lane * a.box_keys, page = a.block_size(key);
    const bool comes = lane < boxes && key < span.end_key && key + a.box_keys > span.first_key;
    return int2{comes ? table[page] : -1, key - page * a.block_size.divisor};
  };
  const auto bring = [&](SwizzledTile<T, kDim>& tile, RingBarriers& ring, const CUtensorMap& map,
                         Turn turn, int2 mine) {
    await_phase(ring.empty[turn.stage], turn.parity ^ 1);
    const unsigned coming = __ballot_sync(0xffffffffu, mine.x >= 0);
    if (is_elected())
      arrive_expecting(ring.full[turn.stage], __popc(coming) * a.box_keys * kPanels<kDim> *
                                                  kPanelDims * static_cast<int>(sizeof(T)));
#pragma unroll 1
    for (int i = 0; i < boxes; ++i) {
      const int page = __shfl_sync(0xffffffffu, mine.x, i),
                token = __shfl_sync(0xffffffffu, mine.y, i);
      if (page < 0 || !is_elected()) continue;
#pragma unroll
      for (int panel = 0; panel < kPanels<kDim>; ++panel)
        load_box(tile.panel[panel][i * a.box_keys], map, ring.full[turn.stage], panel * kPanelDims,
                 kv_head, token, page);
    }
  };
  Turn turn, turn_before;
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

// Keys that nobody sees have no values in the tile, or those of somebody else, which may be NaN:
// they get the weight 0, and become 0 themselves.
template <class T, int kDim>
__device__ __forceinline__ void clear_unseen(SwizzledTile<T, kDim>& v, int key0, const Span& span) {
  constexpr int kChunks = kPanels<kDim> * kPanelDims / kVecWidth<T>;
  if (span.first_key <= key0 && key0 + kTileKeys <= span.end_key) return;
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * kChunks; i += kAttending) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (key0 + row < span.first_key || key0 + row >= span.end_key)
      clear_operand(&v.panel[chunk / 8][row][chunk % 8 * kVecWidth<T>]);
  }
  fence_async_proxy();
  meet_at(kAllAttend, kAttending);
}

// A warpgroup: the scores of tile t beside the weighted values of tile t − 1. The groups begin
// their products in turn, so that one's softmax runs beside another's products.
template <class T, int kDim>
__device__ __forceinline__ void attend(const WgmmaArgs<T>& a, const Request& r, int kv_head,
                                       int row0, const Span& span, Stages<T, kDim>& stages) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const auto release = [](Mbarrier& empty) {
    __syncwarp();  // behind the warp's products, which all lanes read for
    if (threadIdx.x % 32 == 0) arrive(empty);
  };
  const auto await_turn = [&] { meet_at(kFirstTurn + group, 2 * kGroupThreads); };
  const auto end_turn = [&](int t) {
    if (group + 1 < kGroups) return arrive_at(kFirstTurn + group + 1, 2 * kGroupThreads);
    if (t + 1 < span.tiles) arrive_at(kFirstTurn, 2 * kGroupThreads);
  };
  const auto all_seen = [&](int t) {
    return t * kTileKeys >= span.all_from && t * kTileKeys + kTileKeys - 1 <= span.all_to;
  };
  GroupRows<T, kDim> rows;
  rows.load(a, r, kv_head, row0);
  float rescale[2];
  Turn turn, turn_before;
  if (group == kGroups - 1) arrive_at(kFirstTurn, 2 * kGroupThreads);
  await_phase(stages.k_ready.full[0], 0);
  await_turn();
  warpgroup_fence();
  rows.begin_scores(stages.k[0]);
  end_turn(span.begin);
  warpgroup_wait<0>();
  hold(rows.scores);
  release(stages.k_ready.empty[0]);
  rows.weigh(a, span.begin * kTileKeys, all_seen(span.begin), rescale);
  rows.pack_weights(rescale);
  if (span.first_key > span.begin * kTileKeys) {
    await_phase(stages.v_ready.full[0], 0);
    clear_unseen(stages.v[0], span.begin * kTileKeys, span);
  }
  for (int t = span.begin + 1; t < span.tiles; ++t) {
    turn_before = turn;
    turn.advance();
    await_phase(stages.k_ready.full[turn.stage], turn.parity);
    await_phase(stages.v_ready.full[turn_before.stage], turn_before.parity);
    await_turn();
    hold(rows.scores);
    hold(rows.values);
    warpgroup_fence();
    rows.begin_scores(stages.k[turn.stage]);
    rows.begin_values(stages.v[turn_before.stage]);
    end_turn(t);
    warpgroup_wait<1>();
    hold(rows.scores);
    release(stages.k_ready.empty[turn.stage]);
    rows.weigh(a, t * kTileKeys, all_seen(t), rescale);
    warpgroup_wait<0>();
    hold(rows.values);
    release(stages.v_ready.empty[turn_before.stage]);
    rows.pack_weights(rescale);
  }
  await_phase(stages.v_ready.full[turn.stage], turn.parity);
  clear_unseen(stages.v[turn.stage], (span.tiles - 1) * kTileKeys, span);
  hold(rows.values);
  warpgroup_fence();
  rows.begin_values(stages.v[turn.stage]);
  warpgroup_wait<0>();
  hold(rows.values);
  rows.store(a, r, kv_head, row0);
}

// Grid (row tiles, KV heads, requests); tiles with the longest contexts begin first.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    attention_wgmma_kernel(const __grid_constant__ WgmmaArgs<T> a) {
  release_next_kernel();
  await_previous_kernel();
  if constexpr (!kHasWarpgroups) return;
  DYN_SHARED(stages, Stages<T, kDim>);
  const int kv_head = static_cast<int>(blockIdx.y), request = static_cast<int>(blockIdx.z);
  const int first_token = a.query_start[request];
  const int num_tokens = a.query_start[request + 1] - first_token;
  const Request r{first_token, num_tokens, num_tokens * a.group, a.seq_lens[request]};
  const int block_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kBlockRows;
  if (block_row >= r.num_rows || r.num_rows < a.least_rows) return;

  const int first_position = r.position(block_row, a.group),
            last_position = r.position(block_row + kBlockRows - 1, a.group);
  const int first_key = a.seen_from(first_position);
  const Span span{first_key,      last_position + 1,     a.seen_from(last_position),
                  first_position, first_key / kTileKeys, last_position / kTileKeys + 1};
  if (threadIdx.x == 0) init_rings(*stages);
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == kGroups) {
    give_registers<kRegistersOfBringing>();
    if (threadIdx.x < kAttending + 32) bring_tiles(a, request, kv_head, span, *stages);
  } else {
    take_registers<kRegistersOfAttending>();
    attend(a, r, kv_head, block_row + group * kGroupRows, span, *stages);
  }
}

template <class T, int kDim>
void launch_rows(const WgmmaArgs<T>& a, int max_rows, unsigned requests, StreamRef stream) {
  const auto tiles = static_cast<unsigned>((max_rows + kBlockRows - 1) / kBlockRows);
  CUDA_CHECK(launch(attention_wgmma_kernel<T, kDim>,
                    dim3(tiles, static_cast<unsigned>(a.k_cache.extent[2]), requests),
                    dim3(kThreads), sizeof(Stages<T, kDim>), native(stream), a));
}

template <class T>
void launch_wgmma(const AttentionArgs& args, int least_rows, StreamRef stream) {
  const WgmmaArgs<T> a(args, least_rows);
  const int max_rows = args.max_query_len * a.group;
  const auto requests = static_cast<unsigned>(args.seq_lens.extent(0));
  if (args.k_cache.extent(3) == 64) return launch_rows<T, 64>(a, max_rows, requests, stream);
  if (args.k_cache.extent(3) == 96) return launch_rows<T, 96>(a, max_rows, requests, stream);
  launch_rows<T, 128>(a, max_rows, requests, stream);
}

}  // namespace

bool attention_wgmma_supports(const AttentionArgs& args) {
  const std::int64_t dim = args.k_cache.extent(3);
  return is_hopper() && (dim == 64 || dim == 96 || dim == 128) &&
         args.k_cache.dtype() == args.q.dtype() && args.scale > 0.f &&
         fits_tensor_map(args.k_cache) && fits_tensor_map(args.v_cache) &&
         tensor_maps_unavailable().empty();
}

void attention_wgmma(const AttentionArgs& args, int least_rows, StreamRef stream) {
  if (args.q.dtype() == DType::bf16) return launch_wgmma<__nv_bfloat16>(args, least_rows, stream);
  launch_wgmma<__half>(args, least_rows, stream);
}

}  // namespace quire::cuda
