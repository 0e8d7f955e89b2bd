#pragma once
// The new heads that a block of attention_mma.cu needs, where no kernel in front of it has prepared
// them: the queries of its rows, which every block makes for itself, and of the new keys and values
// those in its own tiles, which no other block reads. They go to the cache, from which the tile
// that they are in is read like any other: what is attended to is what the cache holds.

#include "cuda/kernels/attention_mma.cuh"

namespace quire::cuda {

// Of prepared queries; eight rows start in different banks.
template <int kDim>
constexpr int kPreparedStride = kDim + kWideWidth;

// Queries to `to`, [rows][kPreparedStride]; keys at positions [begin, end) to the cache. All
// threads of the block come here, and meet at a barrier before they read any of it.
template <int kDim, class T, class Cache>
__device__ __forceinline__ void prepare_block(const MmaArgs<T, Cache>& a, const Queries& q,
                                              int begin, int end, T* to) {
  constexpr int kLanes = lanes_of(kDim), kHeads = kWarps * 32 / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int first_new = q.first_new_key(), first_key = max(begin, first_new);
  const int heads = q.num_rows + max(0, min(end, q.seq_len) - first_key);
  for (int first = 0; first < heads; first += kHeads) {
    const int head = first + static_cast<int>(threadIdx.x) / kLanes, key = head - q.num_rows;
    const bool there = head < heads && lane < pairs_of(kDim);
    // Of a head that is not there, the first query.
    const int row = there && key < 0 ? head : 0, index = row / a.group;
    const std::int64_t token =
        there && key >= 0 ? q.first_token + first_key - first_new + key : q.token(a, index);
    const bool is_key = there && key >= 0;
    const T* const from = is_key ? a.heads.key(token, q.kv_head)
                                 : a.heads.query(token, q.kv_head * a.group + row % a.group);
    const HeadRuns runs = a.heads.template prepare<true>(
        from, is_key ? a.heads.k_norm : a.heads.q_norm, token, lane, kLanes, there);
    if (!there) continue;
    if (is_key) {
      a.heads.store(runs, token, q.kv_head);
    } else {
      store_rounded(to + row * kPreparedStride<kDim> + runs.first, runs.x);
      store_rounded(to + row * kPreparedStride<kDim> + runs.second, runs.y);
    }
  }
}

}  // namespace quire::cuda
