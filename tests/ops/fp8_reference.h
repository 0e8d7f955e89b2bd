#pragma once
// e4m3 by its definition, in plain arithmetic: what every conversion is held to.

#include <cmath>

namespace quire::test {

constexpr int kFp8Nan = 0x7f, kFp8Largest = 0x7e;  // without the sign

// (−1)^sign · 2^(e − 7) · (1 + m / 8), where e is 0 without the 1 and of 2⁻⁶.
inline double fp8_value(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == kFp8Nan) return NAN;
  const double size = exponent == 0 ? mantissa / 8. * std::pow(2., -6)
                                    : (1 + mantissa / 8.) * std::pow(2., exponent - 7);
  return code & 0x80 ? -size : size;
}

// The nearest code by search, of two as near the even one; a NaN's has any sign.
inline int fp8_nearest(double value) {
  if (std::isnan(value)) return kFp8Nan;
  int best = 0;
  for (int code = 0; code <= kFp8Largest; ++code) {
    const double now = std::fabs(fp8_value(code) - std::fabs(value));
    const double before = std::fabs(fp8_value(best) - std::fabs(value));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  if (std::isinf(value)) best = kFp8Largest;
  return best | (std::signbit(value) ? 0x80 : 0);
}

}  // namespace quire::test
