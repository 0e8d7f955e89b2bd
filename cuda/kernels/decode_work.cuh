#pragma once
// The work of a decode over requests of any lengths: each is cut into parts of about the same
// number of tiles, and a block takes one part, which it finds by itself from the lengths, so that a
// graph's launch fits whatever these are. One long request among many short ones is spread over as
// many blocks as its tiles deserve.

#include <algorithm>

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

constexpr int kMostParts = 64;  // of a request: they are merged one after the other

struct DecodeWork {
  int requests;
  int extra;  // parts beyond one for each request, at most; 0: none is cut
  int least;  // tiles of a part: below this it costs more than it brings
};

struct DecodePart {
  int place;  // among the parts of all requests that are cut; −1: no work is left for this block
  int request, part, parts, tiles;  // tiles: of each part but the last
};

// How many parts of requests that are cut there may be: each is more than a part's tiles long.
constexpr std::int64_t most_places(std::int64_t requests, std::int64_t extra) {
  return extra + std::min(requests, extra);
}
// The largest DecodeWork::extra, up to `wanted`, with room for so many places.
constexpr std::int64_t fitting_extra(std::int64_t requests, std::int64_t room,
                                     std::int64_t wanted) {
  return std::min(wanted, std::max(room - requests, room / 2));
}
static_assert(fitting_extra(1024, 1000, 200) == 200);  // requests that are not cut need no room
static_assert(most_places(1024, fitting_extra(1024, 300, 200)) <= 300);
static_assert(most_places(10, fitting_extra(10, 300, 400)) <= 300);

// Parts of a request of `tiles`; `tiles` becomes those of each.
__device__ __forceinline__ int cut(const DecodeWork& w, int total, int& tiles) {
  if (w.extra == 0 || tiles == 0) return tiles > 0 ? 1 : 0;
  const int each =
      max(max(w.least, (total + w.extra - 1) / w.extra), (tiles + kMostParts - 1) / kMostParts);
  const int parts = (tiles + each - 1) / each;
  tiles = each;
  return parts;
}

// Part number `item` of all. tiles_of(request): 0 for those that others do. All kThreads threads
// call it, and all get the answer.
template <int kThreads, class TilesOf>
__device__ __forceinline__ DecodePart find_part(const DecodeWork& w, int item,
                                                const TilesOf& tiles_of) {
  constexpr int kWarps = kThreads / 32;
  SHARED(totals, int[kWarps]);
  SHARED(counts, std::int64_t[kWarps]);
  SHARED(found, DecodePart);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int each = (w.requests + kThreads - 1) / kThreads;
  const int first = thread * each, last = min(w.requests, first + each);
  int sum = 0;
  for (int r = first; r < last; ++r) sum += tiles_of(r);
  for (int lanes = 16; lanes != 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (lane == 0) totals[warp] = sum;
  if (thread == 0) found = {-1, 0, 0, 0, 0};
  __syncthreads();
  int total = 0;
  for (int i = 0; i < kWarps; ++i) total += totals[i];
  // Parts, and in the upper half those of requests that are cut.
  const auto both = [](int parts) {
    return std::int64_t{parts > 1 ? parts : 0} << 32 | std::int64_t{parts};
  };
  std::int64_t mine = 0;
  for (int r = first; r < last; ++r) {
    int tiles = tiles_of(r);
    mine += both(cut(w, total, tiles));
  }
  std::int64_t before = mine;  // of this warp's threads up to this one
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const std::int64_t other = __shfl_up_sync(0xffffffffu, before, lanes);
    if (lane >= lanes) before += other;
  }
  if (lane == 31) counts[warp] = before;
  __syncthreads();
  before -= mine;
  for (int i = 0; i < warp; ++i) before += counts[i];
  int part = item - static_cast<int>(before);  // of this thread's requests
  if (part >= 0 && part < static_cast<int>(mine)) {
    for (int r = first; r < last; ++r) {
      int tiles = tiles_of(r);
      const int parts = cut(w, total, tiles);
      if (part >= 0 && part < parts)
        found = {static_cast<int>(before >> 32) + part, r, part, parts, tiles};
      before += both(parts);
      part -= parts;
    }
  }
  __syncthreads();
  return found;
}

}  // namespace quire::cuda
