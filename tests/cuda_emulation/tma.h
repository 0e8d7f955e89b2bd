#pragma once
// Reference versions of what cuda/device/tma.cuh has. A box lands when it is started (eager
// copies) or when somebody waits for its barrier (late ones).

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "cuda/device/tma.cuh"
#include "mbarrier.h"
#include "sanitizers.h"
#include "tensor_map.h"

namespace emulation {

// Chunks of 16 bytes, swizzled by the address that they would have: PTX ISA, "Swizzling Modes". In
// instrumented code, so that the sanitizers see the accesses: those to what is copied alone. Beside
// them it works on the stack of whoever waits, who is another thread than TSan is told.
inline void copy_box(const BoxCopy& copy) {
  int rows = 0, chunks = 0;
  {
    TsanIgnore ignore;
    const auto& map = reinterpret_cast<const BoxMap&>(copy.map);
    chunks = map.box[0] * map.element_bytes / 16;
    rows = copy.bytes / (chunks * 16);
  }
  for (int i = 0; i < rows * chunks; ++i) {
    const int row = i / chunks, c = i % chunks;
    const char* from = nullptr;
    std::uintptr_t to = 0;
    std::int64_t first = 0, last = 0;  // of the chunk's bytes, those that are in the tensor
    {
      TsanIgnore ignore;
      const auto& map = reinterpret_cast<const BoxMap&>(copy.map);
      const std::int64_t at = std::int64_t{copy.at[0]} * map.element_bytes + c * 16,
                         end = static_cast<std::int64_t>(map.extent[0]) * map.element_bytes;
      first = std::max<std::int64_t>(0, -at), last = std::min<std::int64_t>(16, end - at);
      from = map.address + at;
      for (int d = 1, rest = row; d < map.rank; rest /= map.box[d++]) {
        const std::int64_t place = std::int64_t{copy.at[d]} + rest % map.box[d];
        if (place < 0 || place >= static_cast<std::int64_t>(map.extent[d])) last = first;
        from += place * static_cast<std::int64_t>(map.stride[d - 1]);
      }
      to = reinterpret_cast<std::uintptr_t>(copy.to) + static_cast<std::uintptr_t>(i * 16);
      if (map.swizzle_bytes != 0)
        to ^= (to >> 7 & static_cast<std::uintptr_t>(map.swizzle_bytes / 16 - 1)) << 4;
    }
    char* const chunk = reinterpret_cast<char*>(to);
    if (last - first < 16) std::memset(chunk, 0, 16);
    if (first < last)
      std::memcpy(chunk + first, from + first, static_cast<std::size_t>(last - first));
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
