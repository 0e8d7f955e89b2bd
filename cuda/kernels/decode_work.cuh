#pragma once
// The work of a decode over requests of any lengths and the prefixes that some have in common: each
// is cut into parts of about the same number of tiles, and a block takes one part, which it finds
// by itself from the lengths, so that a graph's launch fits whatever these are. One long request
// among many short ones is spread over as many blocks as its tiles deserve.

#include <algorithm>

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

constexpr int kMostParts = 64;  // of a unit: they are merged one after the other

struct DecodeWork {
  int entries;
  int extra;  // parts beyond one for each unit, at most; 0: none is cut
  int least;  // tiles of a part: below this it costs more than it brings
};

// What an entry asks for: so many units, each over so many tiles. width: places of a part's
// results. merged: they are partial even where a unit is one part.
struct DecodeLoad {
  int units = 0, tiles = 0, width = 1;
  bool merged = false;
};

struct DecodePart {
  int place;  // of its results, among those of all that are merged; −1: no work for this block
  int entry, unit, part, parts, tiles;  // parts: of the unit; tiles: of each of them but the last
  int total;                            // tiles of all entries
  bool merged;
};

// How many parts of units that are cut there may be: each is more than a part's tiles long.
constexpr std::int64_t most_places(std::int64_t units, std::int64_t extra) {
  return extra + std::min(units, extra);
}
// The largest DecodeWork::extra, up to `wanted`, with room for so many places.
constexpr std::int64_t fitting_extra(std::int64_t units, std::int64_t room, std::int64_t wanted) {
  return std::min(wanted, std::max(room - units, room / 2));
}
static_assert(fitting_extra(1024, 1000, 200) == 200);  // requests that are not cut need no room
static_assert(most_places(1024, fitting_extra(1024, 300, 200)) <= 300);
static_assert(most_places(10, fitting_extra(10, 300, 400)) <= 300);

// Parts of a unit of `tiles`; `tiles` becomes those of each.
__device__ __forceinline__ int cut(const DecodeWork& w, int total, int& tiles) {
  if (w.extra == 0 || tiles == 0) return tiles > 0 ? 1 : 0;
  const int each =
      max(max(w.least, (total + w.extra - 1) / w.extra), (tiles + kMostParts - 1) / kMostParts);
  const int parts = (tiles + each - 1) / each;
  tiles = each;
  return parts;
}

// Part number `item` of all; load_of(entry). All kThreads threads call it, and all get the answer,
// which stays in shared memory.
template <int kThreads, class LoadOf>
__device__ __forceinline__ const DecodePart& find_part(const DecodeWork& w, int item,
                                                       const LoadOf& load_of) {
  constexpr int kWarps = kThreads / 32;
  SHARED(totals, int[kWarps]);
  SHARED(counts, std::int64_t[kWarps]);
  SHARED(found, DecodePart);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int each = (w.entries + kThreads - 1) / kThreads;
  const int first = thread * each, last = min(w.entries, first + each);
  int sum = 0;
  for (int e = first; e < last; ++e) {
    const DecodeLoad load = load_of(e);
    sum += load.units * load.tiles;
  }
  for (int lanes = 16; lanes != 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (lane == 0) totals[warp] = sum;
  if (thread == 0) found = {-1, 0, 0, 0, 0, 0, 0, false};
  __syncthreads();
  int total = 0;
  for (int i = 0; i < kWarps; ++i) total += totals[i];
  const auto is_merged = [](const DecodeLoad& load, int parts) { return parts > 1 || load.merged; };
  // Parts, and in the upper half places.
  const auto both = [&](const DecodeLoad& load, int parts) {
    const int all = load.units * parts;
    return std::int64_t{is_merged(load, parts) ? all * load.width : 0} << 32 | std::int64_t{all};
  };
  std::int64_t mine = 0;
  for (int e = first; e < last; ++e) {
    DecodeLoad load = load_of(e);
    const int parts = cut(w, total, load.tiles);
    mine += both(load, parts);
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
  int part = item - static_cast<int>(before);  // of this thread's entries
  if (part >= 0 && part < static_cast<int>(mine)) {
    for (int e = first; e < last; ++e) {
      DecodeLoad load = load_of(e);
      const int parts = cut(w, total, load.tiles), all = load.units * parts;
      if (part >= 0 && part < all) {
        const int unit = part / parts;
        found = {static_cast<int>(before >> 32) + part * load.width,
                 e,
                 unit,
                 part - unit * parts,
                 parts,
                 load.tiles,
                 total,
                 is_merged(load, parts)};
      }
      before += both(load, parts);
      part -= all;
    }
  }
  __syncthreads();
  return found;
}

}  // namespace quire::cuda
