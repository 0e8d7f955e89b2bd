#pragma once
// Vec on whatever the compiler's baseline offers (SSE2, NEON), by GCC's vector types. Included by
// vec.h only.

namespace quire::cpu::QUIRE_CPU_ISA {

inline constexpr int kLanes = 4;
using Vec = float __attribute__((vector_size(4 * kLanes)));
using VecInt = std::int32_t __attribute__((vector_size(4 * kLanes)));

inline Vec splat(float x) { return Vec{x, x, x, x}; }
inline Vec zero() { return Vec{}; }
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
inline Vec min(Vec a, Vec b) { return a < b ? a : b; }
inline Vec max(Vec a, Vec b) { return a > b ? a : b; }
inline float sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline float max_lane(Vec v) {
  const float a = v[0] > v[1] ? v[0] : v[1];
  const float b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}

inline float to_float(float x) { return x; }
inline float to_float(Bf16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
}
inline float to_float(F16 x) { return static_cast<float>(__builtin_bit_cast(_Float16, x.bits)); }

inline void from_float(float x, float* p) { *p = x; }
// Round to nearest even; NaN stays NaN.
inline void from_float(float x, Bf16* p) {
  const auto u = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
  p->bits = static_cast<std::uint16_t>((x != x ? u | 0x00400000u : rounded) >> 16);
}
inline void from_float(float x, F16* p) {
  p->bits = __builtin_bit_cast(std::uint16_t, static_cast<_Float16>(x));
}

template <class T>
inline Vec load_some(const T* p, int n) {
  Vec v{};
  for (int i = 0; i < n; ++i) v[i] = to_float(p[i]);
  return v;
}
template <class T>
inline Vec load(const T* p) {
  return Vec{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}
template <class T>
inline void store_some(T* p, Vec v, int n) {
  for (int i = 0; i < n; ++i) from_float(v[i], p + i);
}
template <class T>
inline void store(T* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) from_float(v[i], p + i);
}

inline Vec exp(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = x[i] < -87.33654f ? 0.f : __builtin_expf(x[i]);
  return x;
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
