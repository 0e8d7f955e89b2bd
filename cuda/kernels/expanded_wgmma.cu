// Expanded latent attention on Hopper's warpgroup products, as attention_wgmma has it, with keys
// wider than values. A block has 128 rows of one head. One thread brings tiles of 128 positions: of
// a head's keys and values two boxes each, and one of what is rotated, which all heads share. Where
// units of rows are fewer than multiprocessors they are cut into parts of their positions, which
// whoever ends last merges.

#include <algorithm>

#include "cuda/kernels/expanded_rows.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/wgmma_attend.cuh"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

template <class T>
using ExpandedStages = Stages<T, kExpandedKey, kExpandedValue>;
template <class T>
using ExpandedGroup = GroupRows<T, kExpandedKey, kExpandedValue>;
constexpr int kTile = kTileKeys<kExpandedKey>;
constexpr int kPlaceFloats = kBlockRows * kExpandedState;  // of a part's results
static_assert(kExpandedState == part_floats(kExpandedValue));

// Of a round's rows, and keys and values: boxes of a tile's positions, a panel wide.
struct ExpandedMaps {
  CUtensorMap rows, heads;
};

template <class T>
__device__ __forceinline__ int place_of(const ExpandedArgs<T>& a, int head,
                                        const ExpandedItem& item) {
  return head * a.items + item.place;
}
template <class T>
__device__ __forceinline__ float* partials_of(const ExpandedArgs<T>& a, int place) {
  return a.partials + static_cast<std::int64_t>(place) * kPlaceFloats;
}

// One warp, of which one lane starts the boxes: the keys of tile t, then the values of tile t − 1.
template <class T>
__device__ __forceinline__ void bring_tiles(const ExpandedMaps& maps, int latent, int slot,
                                            int head, const Span& span, ExpandedStages<T>& stages) {
  constexpr int kStages = ExpandedStages<T>::kStages;
  constexpr int kNopePanels = kPanels<T, kExpandedNope>, kPanelsOfKey = kPanels<T, kExpandedKey>;
  if (!is_elected()) return;
  prefetch_map(maps.heads);
  prefetch_map(maps.rows);
  const int column = head * kExpandedHead;
  Turn<kStages> turn, turn_before;
  for (int t = span.begin; t <= span.tiles; ++t) {
    if (t < span.tiles) {
      const int row = slot + t * kTile;
      auto& tile = stages.k[turn.stage];
      Mbarrier& full = stages.k_ready.full[turn.stage];
      await_phase(stages.k_ready.empty[turn.stage], turn.parity ^ 1);
      arrive_expecting(full, sizeof(tile.panel));
#pragma unroll
      for (int p = 0; p < kNopePanels; ++p)
        load_box(tile.panel[p], maps.heads, full, column + p * kPanelDims<T>, row);
#pragma unroll
      for (int p = kNopePanels; p < kPanelsOfKey; ++p)
        load_box(tile.panel[p], maps.rows, full, latent + (p - kNopePanels) * kPanelDims<T>, row);
    }
    if (t > span.begin) {
      auto& tile = stages.v[turn_before.stage];
      Mbarrier& full = stages.v_ready.full[turn_before.stage];
      await_phase(stages.v_ready.empty[turn_before.stage], turn_before.parity ^ 1);
      arrive_expecting(full, sizeof(tile.panel));
#pragma unroll
      for (int p = 0; p < kPanels<T, kExpandedValue>; ++p)
        load_box(tile.panel[p], maps.heads, full, column + kExpandedNope + p * kPanelDims<T>,
                 slot + (t - 1) * kTile);
    }
    turn_before = turn;
    turn.advance();
  }
}

// f(h, row) of a lane's two rows that there are; row0: of the group.
template <class T, class F>
__device__ __forceinline__ void for_own_rows(const PieceRows& r, int row0, const F& f) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = ExpandedGroup<T>::row_of(row0, h);
    if (row < r.num_rows) f(h, row);
  }
}

// What the rows have of the pieces before.
template <class T>
__device__ __forceinline__ void resume(ExpandedGroup<T>& rows, const ExpandedArgs<T>& a,
                                       const PieceRows& r, int head, int row0) {
  const int quarter = static_cast<int>(threadIdx.x) % 4;
  for_own_rows<T>(r, row0, [&](int h, int row) {
    const float* state = a.state_of(head, r.first_row + row);
    const float2 sums = *reinterpret_cast<const float2*>(state + kExpandedValue);
    rows.max[h] = sums.x * kLog2e;
    rows.sum[h] = quarter == 0 ? sums.y : 0.f;  // lanes have parts of the sum
    rows.for_values([&](FragmentC& v, int n) {
      const float2 pair = *reinterpret_cast<const float2*>(state + n * 8 + quarter * 2);
      v.r[2 * h] = pair.x;
      v.r[2 * h + 1] = pair.y;
    });
  });
}

template <class T>
__device__ __forceinline__ void leave(ExpandedGroup<T>& rows, const ExpandedArgs<T>& a,
                                      const PieceRows& r, int head, int row0) {
  const int quarter = static_cast<int>(threadIdx.x) % 4;
  for_own_rows<T>(r, row0, [&](int h, int row) {
    if (r.is_open(row)) {
      float* state = a.state_of(head, r.first_row + row);
      rows.for_values([&](const FragmentC& v, int n) {
        *reinterpret_cast<float2*>(state + n * 8 + quarter * 2) = {v.r[2 * h], v.r[2 * h + 1]};
      });
      if (quarter == 0)
        *reinterpret_cast<float2*>(state + kExpandedValue) = {rows.max[h] * kLn2, rows.sum[h]};
      return;
    }
    const float factor = rows.sum[h] > 0.f ? a.value_scale / rows.sum[h] : 0.f;
    T* to = &a.out(r.first_token + row, head, quarter * 2);
    rows.for_values([&](const FragmentC& v, int n) {
      *reinterpret_cast<std::uint32_t*>(to + n * 8) =
          pack<T>(v.r[2 * h] * factor, v.r[2 * h + 1] * factor);
    });
  });
}

template <class T>
__device__ __forceinline__ void merge_parts(const ExpandedArgs<T>& a, const PieceRows& r, int head,
                                            int block_row, const ExpandedItem& item) {
  constexpr int kTogether = kAttending / kMergeLanes;
  const float* results = partials_of(a, place_of(a, head, item));
  const int end = min(kBlockRows, r.num_rows - block_row);
  for (int row0 = 0; row0 < end; row0 += kTogether) {
    const int of_block = row0 + static_cast<int>(threadIdx.x) / kMergeLanes,
              row = block_row + of_block;
    const bool there = of_block < end;
    const PartRun runs[1] = {{results + of_block * kExpandedState, kPlaceFloats, item.parts}};
    merge_runs<kExpandedValue>(runs, there, nullptr, [&](const MergedRow<kExpandedValue>& merged) {
      if (!r.is_open(row)) return merged.store(&a.out(r.first_token + row, head, 0), a.value_scale);
      float* state = a.state_of(head, r.first_row + row);
#pragma unroll
      for (int c = 0; c < merged.kChunks; ++c)
        *reinterpret_cast<float4*>(state + merged.dim_of(c)) = {
            merged.values[c][0], merged.values[c][1], merged.values[c][2], merged.values[c][3]};
      if (threadIdx.x % kMergeLanes == 0)
        *reinterpret_cast<float2*>(state + kExpandedValue) = {merged.total.max, merged.total.sum};
    });
  }
}

// Grid (items, heads).
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    expanded_wgmma_kernel(const __grid_constant__ ExpandedArgs<T> a,
                          const __grid_constant__ ExpandedMaps maps) {
  release_next_kernel();
  await_previous_kernel();
  if constexpr (!kHasWarpgroups) return;
  DYN_SHARED(stages, ExpandedStages<T>);
  const int head = static_cast<int>(blockIdx.y);
  const ExpandedItem item = a.item(static_cast<int>(blockIdx.x));
  const PieceRows r(a, item.piece);
  const int block_row = item.unit * kBlockRows;
  if (block_row >= r.num_rows) return;
  const int last = r.seen_to(r.position(block_row + kBlockRows - 1));
  const TileRange range(item, 0, last / kTile + 1);
  const Span span{0, last + 1, 0, r.seen_to(r.position(block_row)), range.first, range.last};
  if (threadIdx.x == 0) {
    stages->init();
    fence_async_proxy();
  }
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == kGroups) {
    give_registers<kRegistersOfBringing>();
    if (threadIdx.x < kAttending + 32)
      bring_tiles(maps, a.latent, item.piece.slot, head, span, *stages);
  } else {
    take_registers<kRegistersOfAttending>();
    const int row0 = group * kGroupRows;
    ExpandedGroup<T> rows;
    rows.load(a, r, head, block_row + row0, stages->q[group]);
    if (r.goes_on && item.part == 0) resume(rows, a, r, head, block_row + row0);
    if (span.begin < span.tiles) attend(a, span, *stages, rows);
    rows.finish_sums();
    if (item.parts == 1) return leave(rows, a, r, head, block_row + row0);
    const int place = place_of(a, head, item);
    rows.store_part(partials_of(a, place + item.part), r.num_rows - block_row, row0, 1.f);
    if (brings_last(a.arrived + place, item.parts)) merge_parts(a, r, head, block_row, item);
  }
}

template <class T>
void launch_expanded(const ExpandedRound& round, const SplitScratch& scratch, StreamRef stream) {
  ExpandedArgs<T> a(round);
  const TensorView& heads = round.heads;
  const TensorView flat = heads.reshape({heads.extent(0), heads.extent(1) * heads.extent(2)});
  const ExpandedMaps maps{.rows = tensor_map(round.rows, {kTile, kPanelDims<T>}),
                          .heads = tensor_map(flat, {kTile, kPanelDims<T>})};
  std::int64_t units = 0;
  for (const LatentPiece& piece : round.pieces) units += a.units_of(piece, kBlockRows);
  if (units == 0) return;
  const std::int64_t room =
      std::min({std::int64_t{processor_count()}, scratch.floats / kPlaceFloats, scratch.counters});
  const std::int64_t each = room / (units * a.num_heads);
  a.add_pieces(round.pieces, kBlockRows, [&](int, int count) {
    const int tiles = (count + kTile - 1) / kTile;
    return static_cast<int>(std::clamp<std::int64_t>(each, 1, std::max(1, tiles / kLeastTiles)));
  });
  a.to_log2 = round.scale * kLog2e;
  a.partials = scratch.data;
  a.arrived = scratch.arrived;
  CUDA_CHECK(launch(expanded_wgmma_kernel<T>,
                    dim3(static_cast<unsigned>(a.items), static_cast<unsigned>(a.num_heads)),
                    dim3(kThreads), sizeof(ExpandedStages<T>), native(stream), a, maps));
}

}  // namespace

bool expanded_wgmma_supports(const ExpandedRound& round) {
  return uses_warpgroups() && round.scale > 0.f && fits_tensor_map(round.rows) &&
         fits_tensor_map(round.heads) && tensor_maps_unavailable().empty();
}

void expanded_wgmma(const ExpandedRound& round, SplitScratch scratch, StreamRef stream) {
  assert(is_aligned(round.q) && is_aligned(round.out));
  if (round.q.dtype() == DType::bf16) return launch_expanded<__nv_bfloat16>(round, scratch, stream);
  launch_expanded<__half>(round, scratch, stream);
}

}  // namespace quire::cuda
