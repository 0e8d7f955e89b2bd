#pragma once
// The loop of a warpgroup over tiles of keys and values that another warp brings.

#include "cuda/kernels/wgmma_tile.cuh"

namespace quire::cuda {

// Keys that nobody sees have no values in the tile, or those of somebody else, which may be NaN:
// they get the weight 0, and become 0 themselves.
template <class T, int kDim>
__device__ __forceinline__ void clear_unseen(SwizzledTile<T, kDim>& v, int key0, const Span& span) {
  constexpr int kKeys = SwizzledTile<T, kDim>::kRows;
  constexpr int kLanes = kPanelBytes / 16, kChunks = SwizzledTile<T, kDim>::kCount * kLanes;
  if (span.first_key <= key0 && key0 + kKeys <= span.end_key) return;
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kChunks; i += kAttending) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (!span.sees(key0 + row))
      store_operand(&v.panel[chunk / kLanes][row][chunk % kLanes * kVecWidth<T>], uint4{});
  }
  fence_async_proxy();
  meet_at(kAllAttend, kAttending);
}

// A warpgroup: the scores of tile t beside the weighted values of tile t − 1. The groups begin
// their products in turn, so that one's softmax runs beside another's products.
template <class Args, class T, int kDim, int kValueDim>
__device__ __forceinline__ void attend(const Args& a, const Span& span,
                                       Stages<T, kDim, kValueDim>& stages,
                                       GroupRows<T, kDim, kValueDim>& rows) {
  constexpr int kKeys = kTileKeys<kDim>;
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
    return t * kKeys >= span.all_from && t * kKeys + kKeys - 1 <= span.all_to;
  };
  float rescale[2];
  Turn<Stages<T, kDim, kValueDim>::kStages> turn, turn_before;
  if (group == kGroups - 1) arrive_at(kFirstTurn, 2 * kGroupThreads);
  await_phase(stages.k_ready.full[0], 0);
  await_turn();
  warpgroup_fence();
  rows.begin_scores(stages.k[0], stages.q[group]);
  end_turn(span.begin);
  warpgroup_wait<0>();
  hold(rows.scores);
  release(stages.k_ready.empty[0]);
  rows.weigh(a, span.begin * kKeys, all_seen(span.begin), rescale);
  rows.pack_weights(rescale);
  if (span.first_key > span.begin * kKeys) {
    await_phase(stages.v_ready.full[0], 0);
    clear_unseen(stages.v[0], span.begin * kKeys, span);
  }
  for (int t = span.begin + 1; t < span.tiles; ++t) {
    turn_before = turn;
    turn.advance();
    await_phase(stages.k_ready.full[turn.stage], turn.parity);
    await_phase(stages.v_ready.full[turn_before.stage], turn_before.parity);
    await_turn();
    hold(rows.scores);
    rows.hold_values();
    warpgroup_fence();
    rows.begin_scores(stages.k[turn.stage], stages.q[group]);
    rows.begin_values(stages.v[turn_before.stage]);
    end_turn(t);
    warpgroup_wait<1>();
    hold(rows.scores);
    release(stages.k_ready.empty[turn.stage]);
    rows.weigh(a, t * kKeys, all_seen(t), rescale);
    warpgroup_wait<0>();
    rows.hold_values();
    release(stages.v_ready.empty[turn_before.stage]);
    rows.pack_weights(rescale);
  }
  await_phase(stages.v_ready.full[turn.stage], turn.parity);
  clear_unseen(stages.v[turn.stage], (span.tiles - 1) * kKeys, span);
  rows.hold_values();
  warpgroup_fence();
  rows.begin_values(stages.v[turn.stage]);
  warpgroup_wait<0>();
  rows.hold_values();
}

// Behind the stores of a part's results by all that attend: whether it is the last of so many to
// come, in whose block all see them then.
__device__ __forceinline__ bool brings_last(int* arrived, int parts) {
  SHARED(is_last, int);
  meet_at(kAllAttend, kAttending);
  if (threadIdx.x == 0) {
    __threadfence();
    const bool last = atomicAdd(arrived, 1) + 1 == parts;
    if (last) atomicExch(arrived, 0);  // for the next launch
    __threadfence();
    is_last = last ? 1 : 0;
  }
  meet_at(kAllAttend, kAttending);
  return is_last != 0;
}

}  // namespace quire::cuda
