// Half precision by bits is the compiler's own, for every half and for floats around every half.

#include "base/half.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

namespace quire {
namespace {

_Float16 as_half(std::uint32_t bits) {
  return std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits));
}

TEST_CASE("halves are the compiler's in both directions", "[base]") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto exact = static_cast<float>(as_half(bits));
    const float got = half_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(exact)) {
      wrong += !std::isnan(got) || (float_to_half(got) & 0x7e00u) != 0x7e00u;
      continue;
    }
    wrong += std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(exact);
    const auto up = static_cast<float>(as_half((bits & 0x7fffu) == 0x7c00u ? bits : bits + 1));
    const float middle = std::isinf(exact) || std::isinf(up) ? exact : (exact + up) / 2;
    for (const float value : {exact, middle, std::nextafter(middle, -65536.f),
                              std::nextafter(middle, 65536.f)}) {
      wrong += float_to_half(value) != std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
    }
  }
  CHECK(wrong == 0);
  for (const float value : {65519.f, 65520.f, 65536.f, 1e30f, std::numeric_limits<float>::infinity(),
                            0x1p-25f, 0x1.000002p-25f, 1e-40f}) {
    INFO(value);
    CHECK(float_to_half(value) == std::bit_cast<std::uint16_t>(static_cast<_Float16>(value)));
    CHECK(float_to_half(-value) == std::bit_cast<std::uint16_t>(static_cast<_Float16>(-value)));
  }
}

}  // namespace
}  // namespace quire
