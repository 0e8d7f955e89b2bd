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

inline float to_float(E4m3 x) {
  const std::uint32_t size = x.bits & 0x7fu, sign = (x.bits & 0x80u) << 24;
  // Below 8 the codes count steps of 2⁻⁹; above, exponent and mantissa stand as in a float.
  const std::uint32_t magnitude =
      size < 8 ? __builtin_bit_cast(std::uint32_t, static_cast<float>(size) * 0x1p-9f)
               : (size << 20) + (120u << 23);
  return __builtin_bit_cast(float, sign | (size == 0x7f ? 0x7fc00000u : magnitude));
}

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
// Round to nearest even, saturating; NaN stays NaN.
inline void from_float(float x, E4m3* p) {
  const auto raw = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = raw >> 24 & 0x80u;
  const float size = __builtin_bit_cast(float, raw & 0x7fffffffu);
  const float bounded = size < 448.f ? size : 448.f;
  const auto bits = __builtin_bit_cast(std::uint32_t, bounded);
  // In [2¹⁴, 2¹⁵) a float's steps are 2⁻⁹: adding 2¹⁴ rounds a subnormal.
  const std::uint32_t code =
      size < 0x1p-6f ? __builtin_bit_cast(std::uint32_t, bounded + 0x1p14f) - 0x46800000u
                     : ((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - (120u << 3);
  p->bits = static_cast<std::uint8_t>(sign | (x != x ? 0x7fu : code));
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
