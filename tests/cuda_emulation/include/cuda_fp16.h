#pragma once
// Stand-in for CUDA's header: half with the conversions that kernels use.

#include "cuda_runtime.h"

struct __half {
  _Float16 value;
  __half() = default;
  __half(float v) : value(static_cast<_Float16>(v)) {}
  operator float() const { return static_cast<float>(value); }
};
struct alignas(4) __half2 {
  __half x, y;
};

inline float __half2float(__half a) { return a; }
inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }
inline __half2 __floats2half2_rn(float a, float b) { return {a, b}; }
inline __half2 __hsub2(__half2 a, __half2 b) {
  return {float(a.x) - float(b.x), float(a.y) - float(b.y)};
}
