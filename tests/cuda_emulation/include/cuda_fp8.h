#pragma once
// Stand-in for CUDA's header: e4m3 (OCP 8-bit float: bias 7, no infinity, 0x7f is NaN, largest
// 448), saturating.

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda_fp16.h"

struct __nv_fp8_e4m3 {
  std::uint8_t bits;
  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float value) : bits(encode(value)) {}
  explicit operator float() const {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if ((bits & 0x7f) == 0x7f) return NAN;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    return bits & 0x80 ? -size : size;
  }

 private:
  static std::uint8_t encode(float value) {
    const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return sign | 0x7f;
    const float size = std::min(std::fabs(value), 448.f);
    if (size == 0) return sign;
    int exponent = std::max(std::ilogb(size), -6);
    auto steps = static_cast<int>(
        std::nearbyint(std::ldexp(size, 3 - exponent)));  // of 2^(exponent - 3), ties to even
    if (steps == 16) {
      steps = 8;
      ++exponent;
    }
    if (steps < 8) return static_cast<std::uint8_t>(sign | steps);  // subnormal
    return static_cast<std::uint8_t>(sign | (exponent + 7) << 3 | (steps - 8));
  }
};
struct alignas(2) __nv_fp8x2_e4m3 {
  __nv_fp8_e4m3 x, y;
  explicit operator float2() const { return {static_cast<float>(x), static_cast<float>(y)}; }
  explicit operator __half2() const { return {static_cast<float>(x), static_cast<float>(y)}; }
};
