#pragma once
// IEEE binary16 by its bits, for machines and builds whose compiler calls a function for each number.

#include <bit>
#include <cstdint>

namespace quire {

inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t size = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
  // 2^112 is the distance of the two exponents' zeros; subnormals come out right.
  const float scaled = std::bit_cast<float>(size) * 0x1p112f;
  const std::uint32_t special = size >= 0x7c00u << 13 ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

// To nearest, even at a half; NaN stays one.
inline std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (size >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and above
  if (size < 0x38800000u) {  // subnormal: the sum's last bit is worth 2^-24
    const float sum = std::bit_cast<float>(size) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000u));
  }
  const std::uint32_t rounded = size - (112u << 23) + 0xfffu + (size >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

}  // namespace quire
