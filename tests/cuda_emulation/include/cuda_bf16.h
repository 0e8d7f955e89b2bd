#pragma once
// Stand-in for CUDA's header: bfloat16 with the conversions and operators that kernels use.

#include <cmath>

#include "backend/dtype.h"
#include "cuda_runtime.h"

struct __nv_bfloat16 {
  std::uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(quire::bf16(value).bits) {}
  operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 a) { return a; }
inline __nv_bfloat16 __float2bfloat16(float a) { return a; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {a.x, a.y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {a, b}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return {float(a.x) - float(b.x), float(a.y) - float(b.y)};
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return {float(a.x) * float(b.x), float(a.y) * float(b.y)};
}
