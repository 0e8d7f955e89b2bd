#pragma once
// The work of prompts' attention: units of a request's rows, each over the tiles of keys that they
// see. Where few units see many tiles, blocks without one would leave the device to those that have
// one, so units are cut into parts, as many as is their share of all tiles. A block takes one part,
// which it finds by itself from the lengths: a graph's launch fits whatever these are.

#include <algorithm>

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

constexpr int kLeastTiles = 4;  // of a part: below this it costs more than it brings

// Entries are requests. Parts of all units that are cut, at most: where units are no more than
// `few`, and where they are more. 0: none is cut.
struct PromptWork {
  int entries = 0, few = 0, many = 0;
};

// Of a request: its units, and the tiles of the one that sees most.
struct PromptLoad {
  int units = 0, tiles = 0;
};

// Rows of a step: all of them, and of the longest request.
struct PromptRows {
  std::int64_t rows = 0, requests = 0, longest = 0;
};
// How many there are of a unit, and of a request that has units, at least.
struct UnitRows {
  std::int64_t rows = 1, least_of_request = 1;
};
// Units of all requests together, at most.
constexpr std::int64_t most_prompt_units(const PromptRows& step, const UnitRows& unit) {
  if (step.longest < unit.least_of_request) return 0;
  const std::int64_t requests = std::min(step.requests, step.rows / unit.least_of_request);
  return std::min(step.rows / unit.rows + requests,
                  step.requests * ((step.longest + unit.rows - 1) / unit.rows));
}
static_assert(most_prompt_units({512, 1, 512}, {64, 17}) == 8);
static_assert(most_prompt_units({512, 256, 257}, {64, 17}) == 38);
static_assert(most_prompt_units({256, 256, 1}, {64, 17}) == 0);

struct PromptPart {
  int entry;  // −1: no work for this block
  int unit, part, parts;
  int place;  // of the unit's first part, among those of all that are cut
};

// What a part has of a unit's tiles: [first, last), which may be none.
struct TileRange {
  int first, last;
  template <class Part>
  __device__ __forceinline__ TileRange(const Part& p, int begin, int end) {
    const int each = (end - begin + p.parts - 1) / p.parts;
    first = min(end, begin + p.part * each);
    last = min(end, first + each);
  }
};

// Part number `item` of all; load_of(entry). Units that see most come first of a request's. All
// kThreads threads call it, and all get the answer, which stays in shared memory.
template <int kThreads, class LoadOf>
__device__ __forceinline__ const PromptPart& find_prompt_part(const PromptWork& w, int item,
                                                              const LoadOf& load_of) {
  constexpr int kWarps = kThreads / 32;
  SHARED(totals, int2[kWarps]);
  SHARED(counts, int2[kWarps]);
  SHARED(found, PromptPart);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int each = (w.entries + kThreads - 1) / kThreads;
  const int first = thread * each, last = min(w.entries, first + each);
  int tiles = 0, units = 0;
  for (int r = first; r < last; ++r) {
    const PromptLoad load = load_of(r);
    tiles += load.units * load.tiles;
    units += load.units;
  }
  for (int lanes = 16; lanes != 0; lanes /= 2) {
    tiles += __shfl_xor_sync(0xffffffffu, tiles, lanes);
    units += __shfl_xor_sync(0xffffffffu, units, lanes);
  }
  if (lane == 0) totals[warp] = {tiles, units};
  if (thread == 0) found = {-1, 0, 0, 1, 0};
  __syncthreads();
  tiles = units = 0;
  for (int i = 0; i < kWarps; ++i) {
    tiles += totals[i].x;
    units += totals[i].y;
  }
  // Rounded down: all of them together are no more than there may be.
  const int allowed = units <= w.few ? w.few : w.many;
  const auto parts_of = [&](const PromptLoad& load) {
    const int most = load.tiles / kLeastTiles;
    return most <= 1 || allowed == 0 ? 1 : max(1, min(most, load.tiles * allowed / tiles));
  };
  int parts = 0, places = 0;  // of this warp's threads up to this one
  for (int r = first; r < last; ++r) {
    const PromptLoad load = load_of(r);
    const int cut = parts_of(load);
    parts += load.units * cut;
    places += cut > 1 ? load.units * cut : 0;
  }
  const int mine = parts, my_places = places;
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int2 other{__shfl_up_sync(0xffffffffu, parts, lanes),
                     __shfl_up_sync(0xffffffffu, places, lanes)};
    if (lane >= lanes) {
      parts += other.x;
      places += other.y;
    }
  }
  if (lane == 31) counts[warp] = {parts, places};
  __syncthreads();
  parts -= mine;
  places -= my_places;
  for (int i = 0; i < warp; ++i) {
    parts += counts[i].x;
    places += counts[i].y;
  }
  int at = item - parts;  // of this thread's requests
  if (at >= 0 && at < mine) {
    for (int r = first; r < last; ++r) {
      const PromptLoad load = load_of(r);
      const int cut = parts_of(load), all = load.units * cut;
      if (at >= 0 && at < all) {
        const int unit = at / cut;
        found = {r, load.units - 1 - unit, at - unit * cut, cut, places + unit * cut};
      }
      places += cut > 1 ? all : 0;
      at -= all;
    }
  }
  __syncthreads();
  return found;
}

}  // namespace quire::cuda
