#pragma once
// How latent attention is shared out. A unit is 64 rows of a request, heads by tokens, with the
// tiles of keys that they see; units lie one after the other, and each block takes as many tiles as
// every other, whatever units these are of. It finds them by itself from the lengths, so that a
// graph's launch fits whatever these are. A unit that lies in several blocks is merged afterwards.
// Prompts, whose rows see different keys, have blocks of their own in another launch.

#include "backend/ops.h"
#include "cuda/device/softmax_state.cuh"
#include "cuda/device/typed_mma.cuh"
#include "cuda/kernels/page_copies.cuh"

namespace quire::cuda {

constexpr int kLatent = 512, kRowWidth = kLatent + 64;
constexpr int kLatentRows = 64, kLatentKeys = 32;  // of a unit; of a tile
constexpr int kPartFloats = kLatent + 2;           // of a row: values, then maximum and sum
constexpr int kLeastTiles = 8;  // of a block: below this it costs more than it brings
constexpr int kFewTokens = 16, kManyTokens = 256;  // of a request

template <class T, class Cache>
struct LatentParams {
  View<T, 3> out;
  View<const T, 3> q;
  View<const Cache, 3> cache;
  View<const std::int32_t, 2> block_table;
  const std::int32_t *query_start, *seq_lens;
  FastDivide block_size;
  int heads, requests;
  float scale, value_scale;
  bool prompts = false;
  float* partials = nullptr;  // [2][blocks][rows][kPartFloats]: of what a block begins with, and of
                              // a unit that it begins and does not end
  int4* cuts = nullptr;  // [blocks]: of the latter request, unit, parts, whether it is the former;
                         // null: there is one block

  explicit LatentParams(const MlaArgs& args)
      : out(device_view<T, 3>(args.out)),
        q(device_view<const T, 3>(args.q)),
        cache(device_view<const Cache, 3>(args.cache)),
        block_table(device_view<const std::int32_t, 2>(args.block_table)),
        query_start(static_cast<const std::int32_t*>(args.query_start.data())),
        seq_lens(static_cast<const std::int32_t*>(args.seq_lens.data())),
        block_size(static_cast<int>(args.cache.extent(1))),
        heads(static_cast<int>(args.q.extent(1))),
        requests(static_cast<int>(args.seq_lens.extent(0))),
        scale(args.scale * args.cache_scale),
        value_scale(args.cache_scale) {}

  __device__ __forceinline__ PageSource<Cache> keys_of(int request) const {
    return {cache.data, cache.stride[0],  cache.stride[1],
            block_size, block_table.data, request * block_table.stride[0]};
  }
  __device__ __forceinline__ float* partial_of(int half, int block) const {
    return partials +
           (static_cast<std::int64_t>(half) * gridDim.x + block) * (kLatentRows * kPartFloats);
  }
};

// A request's units, and of each the tiles of keys; none in the launch that is not for it.
struct LatentUnits {
  int count = 0, tiles = 0;

  template <class Params>
  __device__ __forceinline__ LatentUnits(const Params& p, int request) {
    const int tokens = p.query_start[request + 1] - p.query_start[request],
              length = p.seq_lens[request];
    const bool prompt = tokens > kFewTokens && (tokens > kManyTokens || 4 * tokens > length);
    if (tokens == 0 || prompt != p.prompts) return;
    count = (tokens * p.heads + kLatentRows - 1) / kLatentRows;
    tiles = max(1, (length + kLatentKeys - 1) / kLatentKeys);
  }
  __device__ __forceinline__ int work() const { return count * tiles; }
};

// Tiles [first, last) of a unit; last 0: no more work.
struct LatentPart {
  int request, unit, first, last;
  float* partial;  // null: these are all of the unit's
};

// What is left for a block: so many tiles from this one on. share: what each block has.
struct LatentLeft {
  int request, unit, tile, tiles, share;
  bool begun;
};

struct LatentWalk {
  LatentLeft left;
  LatentPart parts[2];  // the latest, and the one before, which may be in use
};

// ⌈n / by⌉ for by < 2^16, n < 2^48 and results below 2^31, without a division of 64 bits.
__device__ __forceinline__ int shares(std::int64_t n, int by) {
  const auto divisor = static_cast<unsigned>(by), high = static_cast<unsigned>(n >> 16);
  const unsigned rest = (high % divisor << 16) + static_cast<unsigned>(n & 0xffff);
  return static_cast<int>((high / divisor << 16) + (rest + divisor - 1) / divisor);
}

// Where the block's work begins. All kThreads threads call it, and meet before its result is used.
template <int kThreads, class Params>
__device__ __forceinline__ void find_work(const Params& p, LatentWalk& walk) {
  constexpr int kWarps = kThreads / 32;
  SHARED(sums, std::int64_t[kWarps]);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  if (p.prompts) {  // a unit a block, those that see most first
    if (thread == 0) {
      const int request = static_cast<int>(blockIdx.y), unit = static_cast<int>(blockIdx.x);
      const LatentUnits units(p, request);
      const bool there = unit < units.count;
      walk.left = {request, units.count - 1 - unit, 0, there ? units.tiles : 0, 0, false};
    }
    return;
  }
  const int each = (p.requests + kThreads - 1) / kThreads;
  const int first = thread * each, last = min(p.requests, first + each);
  std::int64_t mine = 0;
  for (int r = first; r < last; ++r) mine += LatentUnits(p, r).work();
  std::int64_t before = mine;  // of this warp's threads up to this one
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const std::int64_t other = __shfl_up_sync(0xffffffffu, before, lanes);
    if (lane >= lanes) before += other;
  }
  if (lane == 31) sums[warp] = before;
  if (thread == 0) walk.left = {};
  __syncthreads();
  std::int64_t total = 0;
  before -= mine;
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) before += sums[i];
    total += sums[i];
  }
  const int share = max(kLeastTiles, shares(total, static_cast<int>(gridDim.x)));
  const auto begin = static_cast<std::int64_t>(share) * blockIdx.x;
  if (begin >= before && begin < before + mine) {
    std::int64_t at = begin - before;
    int r = first;
    for (int work; at >= (work = LatentUnits(p, r).work()); ++r) at -= work;
    const int tiles = LatentUnits(p, r).tiles, unit = static_cast<int>(at) / tiles;
    walk.left = {r,
                 unit,
                 static_cast<int>(at) - unit * tiles,
                 static_cast<int>(min(std::int64_t{share}, total - begin)),
                 share,
                 false};
  }
}

// The next part of the block's work. One thread: the others see it behind a barrier.
template <class Params>
__device__ __forceinline__ void advance(const Params& p, LatentWalk& walk, LatentPart& part) {
  LatentLeft& left = walk.left;
  const int block = static_cast<int>(blockIdx.x);
  part = {0, 0, 0, 0, nullptr};
  int4 cut{0, 0, 0, 0};
  if (left.tiles > 0) {
    LatentUnits units(p, left.request);
    while (left.unit == units.count) {
      left.unit = 0;
      units = LatentUnits(p, ++left.request);
    }
    const int first = left.tile, last = min(units.tiles, first + left.tiles),
              rest = units.tiles - last;
    part = {left.request, left.unit, first, last, nullptr};
    if (first > 0 || rest > 0) part.partial = p.partial_of(left.begun, block);
    if (first == 0 && rest > 0)
      cut = {left.request, left.unit, 1 + (rest + left.share - 1) / left.share, left.begun};
    left.tile = 0;
    ++left.unit;
    left.tiles -= last - first;
    left.begun = true;
  } else if (left.begun) {
    return;
  }
  if (left.tiles == 0 && p.cuts != nullptr) p.cuts[block] = cut;
}

// The rows of a unit: row r is head r % heads of token r / heads.
struct LatentRows {
  int request, first_token, num_tokens, num_rows, seq_len, row0;

  template <class Params>
  __device__ __forceinline__ LatentRows(const Params& p, int request_index, int unit)
      : request(request_index),
        first_token(p.query_start[request]),
        num_tokens(p.query_start[request + 1] - first_token),
        num_rows(num_tokens * p.heads),
        seq_len(p.seq_lens[request]),
        row0(unit * kLatentRows) {}
  // The last position that a row sees; −1 for a row that is not there.
  __device__ __forceinline__ int position(int row, int heads) const {
    return row0 + row < num_rows ? seq_len - num_tokens + (row0 + row) / heads : -1;
  }
  // How many keys the last row sees.
  __device__ __forceinline__ int end(int heads) const {
    return position(min(kLatentRows, num_rows - row0) - 1, heads) + 1;
  }
};

// A row's values, of which this thread has some: each(write) calls write(column, low, high) for its
// pairs of columns.
template <class T, class Cache, class Each>
__device__ __forceinline__ void store_latents(const LatentParams<T, Cache>& p,
                                              const LatentRows& rows, float* partial, int row,
                                              const SoftmaxState& state, bool writes_state,
                                              const Each& each) {
  if (partial == nullptr) {
    const int at = rows.row0 + row, token = at / p.heads;
    T* out = &p.out(rows.first_token + token, at - token * p.heads, 0);
    const float kept = p.value_scale / state.sum;
    each([&](int d, float low, float high) {
      *reinterpret_cast<std::uint32_t*>(out + d) = pack<T>(low * kept, high * kept);
    });
    return;
  }
  float* to = partial + row * kPartFloats;
  if (state.sum > 0.f) {
    each([&](int d, float low, float high) {
      *reinterpret_cast<float2*>(to + d) = {low * p.value_scale, high * p.value_scale};
    });
  }
  if (writes_state) {
    to[kLatent] = state.max;
    to[kLatent + 1] = state.sum;
  }
}

}  // namespace quire::cuda
