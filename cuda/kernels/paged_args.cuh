#pragma once
// What every kernel of paged attention takes: AttentionArgs with types. T: queries and results,
// Cache: keys and values as stored.

#include "backend/ops.h"
#include "cuda/kernels/page_copies.cuh"

namespace quire::cuda {

template <class T, class Cache>
struct PagedArgs {
  View<T, 3> out;
  View<const T, 3> q;
  View<const Cache, 4> k_cache, v_cache;
  View<const std::int32_t, 2> block_table;
  const std::int32_t* query_start;
  const std::int32_t* seq_lens;
  const float* sinks;  // null: none
  FastDivide block_size;
  int group;  // query heads of a KV head
  FastDivide by_group;
  int window;
  float scale, value_scale, soft_cap;  // the scale of the keys is in scale

  explicit PagedArgs(const AttentionArgs& args)
      : out(device_view<T, 3>(args.out)),
        q(device_view<const T, 3>(args.q)),
        k_cache(device_view<const Cache, 4>(args.k_cache)),
        v_cache(device_view<const Cache, 4>(args.v_cache)),
        block_table(device_view<const std::int32_t, 2>(args.block_table)),
        query_start(static_cast<const std::int32_t*>(args.query_start.data())),
        seq_lens(static_cast<const std::int32_t*>(args.seq_lens.data())),
        sinks(static_cast<const float*>(args.sinks.data())),
        block_size(static_cast<int>(args.k_cache.extent(1))),
        group(static_cast<int>(args.q.extent(1) / args.k_cache.extent(2))),
        by_group(group),
        window(args.window),
        scale(args.scale * args.cache_scale.k),
        value_scale(args.cache_scale.v),
        soft_cap(args.soft_cap) {}

  __device__ __forceinline__ PageSource<Cache> keys_of(int request, int kv_head) const {
    return {k_cache.data + kv_head * k_cache.stride[2],
            k_cache.stride[0],
            k_cache.stride[1],
            block_size,
            block_table.data,
            request * block_table.stride[0]};
  }
  // Rows are the query heads of a KV head, token by token.
  __device__ __forceinline__ int token_of(int row) const { return by_group(row); }
  // The first key that a query of this position sees.
  __device__ __forceinline__ int seen_from(int position) const {
    return window > 0 ? ::max(0, position - window + 1) : 0;
  }
  // Bytes from a key to its value; only where pages are plain.
  __device__ __forceinline__ std::uintptr_t value_distance() const {
    return reinterpret_cast<std::uintptr_t>(v_cache.data) -
           reinterpret_cast<std::uintptr_t>(k_cache.data);
  }
};

}  // namespace quire::cuda
