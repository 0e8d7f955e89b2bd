#pragma once
// Partial results of attention_mma.cu, merged by the block that brings a request's last one.

#include "cuda/kernels/attention_mma.cuh"

namespace quire::cuda {

// How many parts have results of a request's rows, of which `parts` are its own.
template <class T, class Cache>
__device__ __forceinline__ int count_parts(const MmaArgs<T, Cache>& a, int request, int parts,
                                           int total, int tile_keys) {
  const PrefixArgs& p = a.prefix;
  int tiles = p.keys_of(request) / tile_keys;
  if (tiles == 0) return parts;
  const int first = p.places[request] - p.starts[p.group_of(request)];
  const int units = (first + a.tokens_of(request) - 1) / p.unit_tokens - first / p.unit_tokens + 1;
  return parts + units * cut(a.work, total, tiles);
}

// Rows [row0, row0 + 4) of a request, by one warp: eight lanes have a row.
template <int kDim, class T, class Cache>
__device__ __forceinline__ void merge_rows(const MmaArgs<T, Cache>& a, int request, int kv_head,
                                           int row0) {
  constexpr int kStride = part_floats(kDim);
  const PrefixArgs& p = a.prefix;
  const int row = row0 + static_cast<int>(threadIdx.x) % 32 / kMergeLanes;
  const bool there = row < a.tokens_of(request) * a.group;
  const int token = there ? a.token_of(row) : 0, in_group = row - token * a.group;
  const int head = kv_head * a.group + (there ? in_group : 0);
  const int2 own = a.cut_of_request(request, kv_head);
  PartRun runs[2] = {{nullptr, p.width * a.place_floats(), 0},
                     {a.partials_of(own.x, kv_head) + row * kStride, a.place_floats(), own.y}};
  if (p.keys_of(request) > 0) {
    const int group = p.group_of(request), index = p.places[request] - p.starts[group] + token,
              unit = index / p.unit_tokens;
    const int2 cuts = a.cut_of_unit(group, unit, kv_head);
    runs[0].first = a.partials_of(cuts.x, kv_head) +
                    ((index - unit * p.unit_tokens) * a.group + in_group) * kStride;
    runs[0].count = cuts.y;
  }
  merge_runs<kDim>(runs, there, a.sinks != nullptr ? a.sinks + head : nullptr,
                   [&](const MergedRow<kDim>& merged) {
                     merged.store(&a.out(a.query_start[request] + token, head, 0), 1.f);
                   });
}

// Behind the block's stores of its part's results: of whom all are there now is merged.
template <int kDim, class T, class Cache>
__device__ __forceinline__ void merge_complete(const MmaArgs<T, Cache>& a, const Queries& q,
                                               const DecodePart& part, int tile_keys) {
  SHARED(complete, int[kUnitRows]);  // by the block's requests: which of them, or −1
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const bool unit = q.member >= 0;
  const int candidates = unit ? q.num_tokens : 1;
  __syncthreads();
  if (thread < candidates) {
    int request = unit ? a.prefix.members[q.member + thread] : q.request;
    if (thread > 0 && a.prefix.members[q.member + thread - 1] == request) {
      request = -1;  // its first token here speaks for it
    } else {
      int parts = part.parts;
      if (unit) {
        int tiles = decode_load(a, a.prefix.groups + request, tile_keys).tiles;
        parts = cut(a.work, part.total, tiles);
      }
      int* arrived = a.arrived + request * a.k_cache.extent[2] + q.kv_head;
      __threadfence();
      if (atomicAdd(arrived, 1) + 1 == count_parts(a, request, parts, part.total, tile_keys)) {
        atomicExch(arrived, 0);  // for the next launch
      } else {
        request = -1;
      }
      __threadfence();
    }
    complete[thread] = request;
  }
  __syncthreads();
  for (int i = 0; i < candidates; ++i) {
    const int request = complete[i];
    if (request < 0) continue;
    const int rows = a.tokens_of(request) * a.group;
    const int row = ((warp - i) & (kWarps - 1)) * 4;
    if (row < rows) merge_rows<kDim>(a, request, q.kv_head, row);
  }
}

}  // namespace quire::cuda
