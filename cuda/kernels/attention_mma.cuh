#pragma once
// What attention_mma.cu is given, and what one of its blocks sees of it: a request, or a unit of
// rows of several requests over the prefix that these have in common.

#include "cuda/kernels/attention.h"
#include "cuda/kernels/decode_work.cuh"
#include "cuda/kernels/new_heads.cuh"
#include "cuda/kernels/paged_args.cuh"
#include "cuda/kernels/part_runs.cuh"
#include "cuda/kernels/prompt_work.cuh"

namespace quire::cuda {

constexpr int kWarpRows = kMmaDecodeRows;
constexpr int kWarps = 4;
constexpr int kUnitRows = kWarps * kWarpRows;

// SharedPrefixes with types. Entries of the decode's work are these groups, then the requests.
struct PrefixArgs {
  int groups = 0;
  int unit_tokens = 0;  // of whole tokens, what kUnitRows has room for
  int width = 0;        // places of a unit's part
  int units = 0;        // of all groups, at most
  const std::int32_t *starts = nullptr, *members = nullptr, *places = nullptr, *lengths = nullptr;

  __device__ __forceinline__ int keys_of(int request) const {
    return groups > 0 ? lengths[request] : 0;
  }
  // A unit's number among those of all groups.
  __device__ __forceinline__ int unit_of(int group, int unit) const {
    return starts[group] / unit_tokens + group + unit;
  }
  // Of a request that has one.
  __device__ __forceinline__ int group_of(int request) const {
    int group = 0;
    while (group + 1 < groups && places[request] >= starts[group + 1]) ++group;
    return group;
  }
};

template <class T, class Cache>
struct MmaArgs : PagedArgs<T, Cache> {
  DecodeWork work{};
  PromptWork prompts{};  // of requests with more rows than decode takes; none of its units is cut
  PrefixArgs prefix{};
  int items = 0, split_rows = 0;  // parts, at most
  int most_rows = 0;              // of a request that is not another kernel's
  int places = 0;                 // for results of split_rows rows
  float* partials = nullptr;      // [KV heads, places, split_rows, part_floats]
  int2* cuts = nullptr;    // [KV heads, units of prefixes, then requests]: first place, parts
  int* arrived = nullptr;  // [requests, KV heads]: parts; zeros between launches
  NewHeads<T, Cache> heads{};  // without queries: these are in q, and the keys in the cache

  explicit MmaArgs(const AttentionArgs& args) : PagedArgs<T, Cache>(args) {}
  __device__ __forceinline__ float* partials_of(int place, int kv_head) const {
    const std::int64_t at = static_cast<std::int64_t>(kv_head) * places + place;
    return partials + at * place_floats();
  }
  __device__ __forceinline__ int place_floats() const {
    return split_rows * part_floats(static_cast<int>(this->out.extent[2]));
  }
  __device__ __forceinline__ int num_cuts() const {
    return prefix.units + work.entries - prefix.groups;
  }
  __device__ __forceinline__ int2& cut_of_unit(int group, int unit, int kv_head) const {
    return cuts[kv_head * num_cuts() + prefix.unit_of(group, unit)];
  }
  __device__ __forceinline__ int2& cut_of_request(int request, int kv_head) const {
    return cuts[kv_head * num_cuts() + prefix.units + request];
  }
  __device__ __forceinline__ int tokens_of(int request) const {
    return this->query_start[request + 1] - this->query_start[request];
  }
};

// Rows of a block: query heads of a request's tokens, or of a unit's.
struct Queries {
  int request, kv_head, first_token, num_tokens, num_rows;  // request: whose keys they are
  int seq_len;                                              // keys
  int member = -1;  // of a unit, the place of its first token; −1: all are the request's

  template <class T, class Cache>
  __device__ __forceinline__ Queries(const MmaArgs<T, Cache>& a, int request_index, int head)
      : request(request_index),
        kv_head(head),
        first_token(a.query_start[request]),
        num_tokens(a.query_start[request + 1] - first_token),
        num_rows(num_tokens * a.group),
        seq_len(a.seq_lens[request]) {}
  template <class T, class Cache>
  __device__ __forceinline__ Queries(const MmaArgs<T, Cache>& a, const DecodePart& part, int head)
      : Queries(a,
                part.entry < a.prefix.groups ? a.prefix.members[a.prefix.starts[part.entry]]
                                             : part.entry - a.prefix.groups,
                head) {
    if (part.entry >= a.prefix.groups) return;
    const PrefixArgs& p = a.prefix;
    member = p.starts[part.entry] + part.unit * p.unit_tokens;
    num_tokens = min(p.unit_tokens, p.starts[part.entry + 1] - member);
    num_rows = num_tokens * a.group;
    seq_len = p.lengths[request];
  }

  // Of the index-th token: where it is among all, and the last key that it sees.
  template <class T, class Cache>
  __device__ __forceinline__ int token(const MmaArgs<T, Cache>& a, int index) const {
    if (member < 0) return first_token + index;
    const int owner = a.prefix.members[member + index];
    return a.query_start[owner] + member + index - a.prefix.places[owner];
  }
  __device__ __forceinline__ int position(int index) const {
    return seq_len - 1 - (member < 0 ? num_tokens - 1 - index : 0);
  }
  // The first of its keys that may be new: those of its own tokens.
  __device__ __forceinline__ int first_new_key() const {
    return member < 0 ? seq_len - num_tokens : seq_len;
  }
  // That the rows from block_row on see.
  template <class T, class Cache>
  __device__ __forceinline__ int first_key(const MmaArgs<T, Cache>& a, int block_row) const {
    return a.window > 0 ? max(0, position(a.token_of(block_row)) - a.window + 1) : 0;
  }
};

// What decode does of an entry. A request has at least one tile, so that somebody writes its
// result.
template <class T, class Cache>
__device__ __forceinline__ DecodeLoad decode_load(const MmaArgs<T, Cache>& a, int entry,
                                                  int tile_keys) {
  const PrefixArgs& p = a.prefix;
  if (entry < p.groups) {
    const int first = p.starts[entry], tokens = p.starts[entry + 1] - first;
    if (tokens == 0) return {};
    return {(tokens + p.unit_tokens - 1) / p.unit_tokens, p.lengths[p.members[first]] / tile_keys,
            p.width, true};
  }
  const int request = entry - p.groups;
  const Queries q(a, request, 0);
  if (q.num_rows == 0 || q.num_rows > kWarpRows) return {};
  const int shared = p.keys_of(request);
  const int first = shared > 0 ? shared / tile_keys : q.first_key(a, 0) / tile_keys;
  return {1, max(1, (q.seq_len + tile_keys - 1) / tile_keys - first), 1, shared > 0};
}

// And prefill: units of requests that are another kernel's are none.
template <class T, class Cache>
__device__ __forceinline__ PromptLoad prompt_load(const MmaArgs<T, Cache>& a, int request) {
  const int rows = a.tokens_of(request) * a.group;
  if (rows <= kWarpRows || rows > a.most_rows) return {};
  return {(rows + kUnitRows - 1) / kUnitRows, 1};
}

}  // namespace quire::cuda
