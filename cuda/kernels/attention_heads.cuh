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
// threads of the block come here, and meet at a barrier before they read any of it. No warp has
// queries and keys, which it would make in turn.
template <int kDim, class T, class Cache>
__device__ __forceinline__ void prepare_block(const MmaArgs<T, Cache>& a, const Queries& q,
                                              int begin, int end, T* to) {
  constexpr int kLanes = lanes_of(kDim), kOfWarp = 32 / kLanes;
  const int warp = static_cast<int>(threadIdx.x) / 32, thread = static_cast<int>(threadIdx.x) % 32;
  const bool has_some = thread % kLanes < pairs_of(kDim);
  const int lane = has_some ? thread % kLanes : 0;
  const int first_new = q.first_new_key(), first_key = max(begin, first_new);
  const int before_keys = (q.num_rows + kOfWarp - 1) / kOfWarp * kOfWarp;
  const int heads = before_keys + max(0, min(end, q.seq_len) - first_key);
  for (int first = warp * kOfWarp; first < heads; first += kWarps * kOfWarp) {
    const int head = first + thread / kLanes;
    const bool is_key = first >= before_keys;
    const bool there = has_some && head < (is_key ? heads : q.num_rows);
    // Who has no head reads the first of its kind.
    const int row = there && !is_key ? head : 0, key = there && is_key ? head - before_keys : 0,
              index = a.token_of(row);
    const int token = is_key ? q.first_token + first_key - first_new + key : q.token(a, index);
    const HeadRuns<T> runs = a.heads.template prepare<true>(
        is_key ? a.heads.key(token, q.kv_head)
               : a.heads.query(token, q.kv_head * a.group + row - index * a.group),
        is_key ? a.heads.k_norm : a.heads.q_norm, token, lane, kLanes, has_some);
    if (!there) continue;
    if (is_key) {
      a.heads.store(runs, token, q.kv_head);
    } else {
      store_wide(to + row * kPreparedStride<kDim> + runs.first, runs.x);
      store_wide(to + row * kPreparedStride<kDim> + runs.second, runs.y);
    }
  }
}

}  // namespace quire::cuda
