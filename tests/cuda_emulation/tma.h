#pragma once
// Reference versions of what cuda/device/tma.cuh has. A box lands when it is started (eager
// copies) or when somebody waits for its barrier (late ones).

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "cuda/device/tma.cuh"
#include "mbarrier.h"
#include "tensor_map.h"

namespace emulation {

// Chunks of 16 bytes, swizzled by the address that they would have: PTX ISA, "Swizzling Modes". In
// instrumented code, so that the sanitizers see the accesses.
inline void copy_box(const BoxCopy& copy) {
  BoxMap map;
  std::memcpy(&map, copy.map, sizeof map);
  const int chunks = map.box[0] * map.element_bytes / 16, rows = copy.bytes / (chunks * 16);
  for (int row = 0; row < rows; ++row) {
    const char* from = map.address;
    bool inside = true;
    for (int d = 1, rest = row; d < map.rank; rest /= map.box[d++]) {
      const std::int64_t at = std::int64_t{copy.at[d]} + rest % map.box[d];
      inside = inside && at >= 0 && at < static_cast<std::int64_t>(map.extent[d]);
      from += at * static_cast<std::int64_t>(map.stride[d - 1]);
    }
    for (int c = 0; c < chunks; ++c) {
      const std::int64_t at = std::int64_t{copy.at[0]} * map.element_bytes + c * 16,
                         end = static_cast<std::int64_t>(map.extent[0]) * map.element_bytes;
      auto to = reinterpret_cast<std::uintptr_t>(copy.to) +
                static_cast<std::uintptr_t>((row * chunks + c) * 16);
      if (map.swizzle_bytes != 0)
        to ^= (to >> 7 & static_cast<std::uintptr_t>(map.swizzle_bytes / 16 - 1)) << 4;
      char bytes[16] = {};
      const std::int64_t first = std::max<std::int64_t>(0, -at),
                         last = std::min<std::int64_t>(16, end - at);
      if (inside && first < last)
        std::memcpy(bytes + first, from + at + first, static_cast<std::size_t>(last - first));
      std::memcpy(reinterpret_cast<void*>(to), bytes, sizeof bytes);
    }
  }
}

inline void issue_box(void* to, const CUtensorMap& map, void* full, std::initializer_list<int> at,
                      Site site) {
  const auto& box = reinterpret_cast<const BoxMap&>(map);
  if (reinterpret_cast<std::uintptr_t>(&map) % 64 != 0 || box.mark != kMapMark ||
      box.rank != at.size())
    fail("%s at %s:%d: no map of %d dimensions", site.what, site.file, site.line,
         static_cast<int>(at.size()));
  BoxCopy copy;
  copy.to = to;
  copy.land = copy_box;
  std::memcpy(copy.map, map.opaque, sizeof copy.map);
  copy.bytes = box.element_bytes;
  for (int d = 0; d < box.rank; ++d) {
    copy.at[d] = at.begin()[d];
    copy.bytes *= box.box[d];
  }
  box_issue(copy, full, site);
}

}  // namespace emulation

namespace quire::cuda {

inline void prefetch_map(const CUtensorMap&) {}

inline void load_box(void* to, const CUtensorMap& map, Mbarrier& full, int x, int y,
                     EMULATION_SITE) {
  emulation::issue_box(to, map, &full, {x, y}, EMULATION_HERE("load_box"));
}
inline void load_box(void* to, const CUtensorMap& map, Mbarrier& full, int x, int y, int z,
                     EMULATION_SITE) {
  emulation::issue_box(to, map, &full, {x, y, z}, EMULATION_HERE("load_box"));
}
inline void load_box(void* to, const CUtensorMap& map, Mbarrier& full, int x, int y, int z, int w,
                     EMULATION_SITE) {
  emulation::issue_box(to, map, &full, {x, y, z, w}, EMULATION_HERE("load_box"));
}

}  // namespace quire::cuda
