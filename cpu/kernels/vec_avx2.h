#pragma once
// Vec on AVX2 with FMA and F16C. Included by vec.h only.

#include <immintrin.h>

namespace quire::cpu::QUIRE_CPU_ISA {

using Vec = __m256;
inline constexpr int kLanes = 8;

inline Vec splat(float x) { return _mm256_set1_ps(x); }
inline Vec zero() { return _mm256_setzero_ps(); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }

inline float sum(Vec v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float max_lane(Vec v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

inline Vec from_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
// Round to nearest even; NaN stays NaN.
inline __m128i to_bf16(Vec v) {
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x00400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

// As f16 the same bits are a number 2⁸ times smaller, but for the code of NaN.
inline Vec from_e4m3(__m128i bits) {
  const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(bits), 7);  // sign twice, exponent, …
  const __m128i size = _mm_and_si128(wide, _mm_set1_epi16(0x3f80));
  const __m128i nan = _mm_cmpeq_epi16(size, _mm_set1_epi16(0x3f80));
  const __m128i sign = _mm_and_si128(wide, _mm_set1_epi16(-0x8000));
  const __m128i half = _mm_or_si128(_mm_or_si128(size, sign), _mm_srli_epi16(nan, 1));
  return _mm256_mul_ps(_mm256_cvtph_ps(half), splat(256.f));
}
// Round to nearest even, saturating; NaN stays NaN.
inline __m128i to_e4m3(Vec v) {
  const __m256i sign = _mm256_srli_epi32(
      _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(-0x7fffffff - 1)), 24);
  const Vec size = _mm256_andnot_ps(splat(-0.f), v);
  const Vec bounded = min(splat(448.f), size);  // of two, the second where one is NaN
  const __m256i u = _mm256_castps_si256(bounded);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 20), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff)));
  const __m256i normal =
      _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32(120 << 3));
  // In [2¹⁴, 2¹⁵) a float's steps are 2⁻⁹: adding 2¹⁴ rounds a subnormal.
  const __m256i small =
      _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(bounded, splat(0x1p14f))),
                       _mm256_castps_si256(splat(0x1p14f)));
  const __m256i is_small = _mm256_castps_si256(_mm256_cmp_ps(bounded, splat(0x1p-6f), _CMP_LT_OQ));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i code = _mm256_blendv_epi8(_mm256_blendv_epi8(normal, small, is_small),
                                          _mm256_set1_epi32(0x7f), is_nan);
  const __m256i all = _mm256_or_si256(code, sign);
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  return _mm_packus_epi16(words, words);
}

inline __m128i load_bits(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline Vec load(const Bf16* p) { return from_bf16(load_bits(p)); }
inline Vec load(const F16* p) { return _mm256_cvtph_ps(load_bits(p)); }
inline Vec load(const E4m3* p) {
  return from_e4m3(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline void store(Bf16* p, Vec v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bf16(v)); }
inline void store(F16* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store(E4m3* p, Vec v) { _mm_storel_epi64(reinterpret_cast<__m128i*>(p), to_e4m3(v)); }

template <class T>
inline Vec load_some(const T* p, int n) {
  T whole[kLanes] = {};
  __builtin_memcpy(whole, p, static_cast<unsigned>(n) * sizeof(T));
  return load(whole);
}
template <class T>
inline void store_some(T* p, Vec v, int n) {
  T whole[kLanes];
  store(whole, v);
  __builtin_memcpy(p, whole, static_cast<unsigned>(n) * sizeof(T));
}

// Cephes' expf on 8 lanes: 2 ulp; 0 below −87.3, inf above 88.7.
inline Vec exp(Vec x) {
  const Vec bounded = min(max(x, splat(-88.f)), splat(88.72284f));
  const Vec n = _mm256_round_ps(_mm256_mul_ps(bounded, splat(1.44269504088896341f)),
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  Vec r = fma(n, splat(-0.693359375f), bounded);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(_mm256_mul_ps(p, r), r, _mm256_add_ps(r, splat(1.f)));
  // 2^n as 2^(n / 2) twice: n = 128 has no float of its own.
  const __m256i i = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(i, 1);
  const auto power = [](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  p = _mm256_mul_ps(_mm256_mul_ps(p, power(half)), power(_mm256_sub_epi32(i, half)));
  p = _mm256_blendv_ps(p, zero(), _mm256_cmp_ps(x, splat(-87.33654f), _CMP_LT_OQ));
  p = _mm256_blendv_ps(p, splat(__builtin_inff()), _mm256_cmp_ps(x, splat(88.72284f), _CMP_GT_OQ));
  return _mm256_blendv_ps(p, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
