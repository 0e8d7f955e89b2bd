#pragma once
// e4m3 as a storage type on the host: the OCP 8-bit float with 4 exponent bits (bias 7) and 3
// mantissa bits. No infinity; 0x7f and 0xff are NaN; the largest is 448, the smallest 2⁻⁹.

#include <bit>
#include <cstdint>

#include "backend/dtype.h"

namespace quire {

struct fp8_e4m3 {
  static constexpr float kMax = 448.f;

  std::uint8_t bits = 0;
  fp8_e4m3() = default;
  // Round to nearest even; beyond ±448, and infinity, is ±448; NaN stays NaN.
  constexpr explicit fp8_e4m3(float value) : bits(encode(value)) {}
  constexpr explicit operator float() const {
    const std::uint32_t size = bits & 0x7fu, sign = (bits & 0x80u) << 24;
    if (size == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
    // Below 8 the codes count steps of 2⁻⁹; above, exponent and mantissa stand as in a float.
    const auto magnitude = size < 8
                               ? std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-9f)
                               : (size << 20) + (120u << 23);
    return std::bit_cast<float>(sign | magnitude);
  }

 private:
  static constexpr std::uint8_t encode(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = raw >> 24 & 0x80u, size = raw & 0x7fffffffu;
    constexpr auto kLargest = std::bit_cast<std::uint32_t>(kMax);
    constexpr auto kSmallestNormal = std::bit_cast<std::uint32_t>(0x1p-6f);
    // In [2¹⁴, 2¹⁵) a float's steps are 2⁻⁹: adding 2¹⁴ rounds a subnormal.
    constexpr auto kSteps = std::bit_cast<std::uint32_t>(0x1p14f);
    std::uint32_t code = 0x7f;
    if (size < kSmallestNormal) {
      code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0x1p14f) - kSteps;
    } else if (size <= kLargest) {
      code = ((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - (120u << 3);
    } else if (size <= 0x7f800000u) {
      code = 0x7e;
    }
    return static_cast<std::uint8_t>(sign | code);
  }
};

static_assert(sizeof(fp8_e4m3) == 1);

template <>
struct DTypeOf<fp8_e4m3> : std::integral_constant<DType, DType::fp8_e4m3> {};

}  // namespace quire
