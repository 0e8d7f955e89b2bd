#pragma once
// What attention_mma.cu is given, and a request as one of its blocks sees it.

#include "cuda/kernels/attention.h"
#include "cuda/kernels/decode_work.cuh"
#include "cuda/kernels/paged_args.cuh"

namespace quire::cuda {

constexpr int kWarpRows = kMmaDecodeRows;

template <class T, class Cache>
struct MmaArgs : PagedArgs<T, Cache> {
  DecodeWork work{};
  int items = 0, split_rows = 0;  // parts of requests, at most
  int places = 0;                 // of those of requests that are cut
  float* partials = nullptr;      // [KV heads, split_rows, places, D + 2]
  int2* cuts = nullptr;           // [requests]: first place, parts

  explicit MmaArgs(const AttentionArgs& args) : PagedArgs<T, Cache>(args) {}
  // Of a row of a request's.
  __device__ __forceinline__ float* partials_of(int place, int kv_head, int row) const {
    const std::int64_t at =
        (static_cast<std::int64_t>(kv_head) * split_rows + row) * places + place;
    return partials + at * (this->out.extent[2] + 2);
  }
};

// A request seen from one block.
struct Queries {
  int request, kv_head, first_token, num_tokens, num_rows, seq_len;

  template <class T, class Cache>
  __device__ __forceinline__ Queries(const MmaArgs<T, Cache>& a, int request_index, int head)
      : request(request_index),
        kv_head(head),
        first_token(a.query_start[request]),
        num_tokens(a.query_start[request + 1] - first_token),
        num_rows(num_tokens * a.group),
        seq_len(a.seq_lens[request]) {}
  // The first tile that the rows from block_row on see.
  template <class T, class Cache>
  __device__ __forceinline__ int first_tile(const MmaArgs<T, Cache>& a, int block_row,
                                            int tile_keys) const {
    const int position = seq_len - num_tokens + block_row / a.group;
    return (a.window > 0 ? max(0, position - a.window + 1) : 0) / tile_keys;
  }
};

// Tiles of a request that decode does; at least one, so that somebody writes the result.
template <class T, class Cache>
__device__ __forceinline__ int decode_tiles(const MmaArgs<T, Cache>& a, int request,
                                            int tile_keys) {
  const Queries q(a, request, 0);
  if (q.num_rows == 0 || q.num_rows > kWarpRows) return 0;
  return max(1, (q.seq_len + tile_keys - 1) / tile_keys - q.first_tile(a, 0, tile_keys));
}

}  // namespace quire::cuda
