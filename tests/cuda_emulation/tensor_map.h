#pragma once
// What the emulated driver writes into a CUtensorMap.

#include <cuda.h>

#include <cstdint>

namespace emulation {

constexpr int kMostDims = 5;
constexpr std::uint64_t kMapMark = 0x7a6d617065736f62;  // in no map that was not made

struct BoxMap {
  std::uint64_t mark;
  const char* address;
  std::uint64_t extent[kMostDims];      // the innermost first; elements
  std::uint64_t stride[kMostDims - 1];  // bytes, from the second dimension on
  std::uint16_t box[kMostDims];
  std::uint8_t rank, element_bytes, swizzle_bytes;  // swizzle: 0 where there is none
};
static_assert(sizeof(BoxMap) <= sizeof(CUtensorMap));

}  // namespace emulation
