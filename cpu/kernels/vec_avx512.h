#pragma once
// Vec on AVX-512. Included by vec.h only.

#include <immintrin.h>

namespace quire::cpu::QUIRE_CPU_ISA {

using Vec = __m512;
inline constexpr int kLanes = 16;

inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline float sum(Vec v) { return _mm512_reduce_add_ps(v); }
// One level of the tree of sum(): a's lanes folded in one part, b's in the other.
template <int kLevel>
inline __attribute__((always_inline)) Vec folded(Vec a, Vec b) {
  if constexpr (kLevel == 0) {
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
  } else if constexpr (kLevel == 1) {
    const Vec other = _mm512_mask_blend_ps(0xf0f0, b, a);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, a, b),
                         _mm512_shuffle_f32x4(other, other, 0xb1));
  } else if constexpr (kLevel == 2) {
    return _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, 0x4e));
  } else {
    const Vec other = _mm512_mask_blend_ps(0xaaaa, b, a);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xaaaa, a, b), _mm512_permute_ps(other, 0xb1));
  }
}
// v[0] of 16 registers' sums, in the order of their numbers' bits reversed; v[1] of those behind.
template <int kCount, int kLevel = 0>
inline __attribute__((always_inline)) void fold(Vec* v) {
  if constexpr (kLevel < 4) {
#pragma GCC unroll 16
    for (int i = 0; i < kCount / 2; ++i) v[i] = folded<kLevel>(v[2 * i], v[2 * i + 1]);
    if constexpr (kCount % 2 != 0) v[kCount / 2] = folded<kLevel>(v[kCount - 1], v[kCount - 1]);
    fold<(kCount + 1) / 2, kLevel + 1>(v);
  }
}
template <int kRows, int kColumns>
struct FoldedPlaces {
  alignas(64) std::int32_t at[kRows][16] = {};
  constexpr FoldedPlaces() {
    for (int j = 0; j < kRows * kColumns; ++j) {
      const int lane = (j & 1) << 3 | (j & 2) << 1 | (j & 4) >> 1 | (j & 8) >> 3;
      at[j / kColumns][j % kColumns] = j / 16 * 16 + lane;
    }
  }
};
template <int kRows, int kColumns>
inline constexpr FoldedPlaces<kRows, kColumns> kFoldedPlaces;

// to[r · stride + c] = sum(v[r · kColumns + c]); eight floats of each row are written.
template <int kRows, int kColumns>
inline __attribute__((always_inline)) void store_sums(Vec* v, float* to, std::int64_t stride) {
  static_assert(kColumns <= 8 && kRows * kColumns <= 32);
  fold<kRows * kColumns>(v);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512i places = _mm512_load_si512(kFoldedPlaces<kRows, kColumns>.at[r]);
    const Vec row = kRows * kColumns > 16 ? _mm512_permutex2var_ps(v[0], places, v[1])
                                          : _mm512_permutexvar_ps(places, v[0]);
    _mm256_storeu_ps(to + r * stride, _mm512_castps512_ps256(row));
  }
}
inline float max_lane(Vec v) { return _mm512_reduce_max_ps(v); }

inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline Vec from_bf16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// Round to nearest even; NaN stays NaN.
inline __m256i to_bf16(Vec v) {
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i bits = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x00400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}

// As f16 the same bits are a number 2⁸ times smaller, but for the code of NaN.
inline Vec from_e4m3(__m128i bits) {
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bits), 7);  // sign twice, exponent, …
  const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(-0x4001));
  const __m256i nan = _mm256_set1_epi16(0x3f80);
  const __mmask16 is_nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(wide, nan), nan);
  return _mm512_mul_ps(
      _mm512_cvtph_ps(_mm256_mask_mov_epi16(half, is_nan, _mm256_set1_epi16(0x7fff))),
      splat(256.f));
}
// Round to nearest even, saturating; NaN stays NaN.
inline __m128i to_e4m3(Vec v) {
  const __m512i sign =
      _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(v), 24), _mm512_set1_epi32(0x80));
  const Vec bounded = min(splat(448.f), _mm512_abs_ps(v));  // of two, the second where one is NaN
  const __m512i u = _mm512_castps_si512(bounded);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 20), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff)));
  const __m512i normal =
      _mm512_sub_epi32(_mm512_srli_epi32(rounded, 20), _mm512_set1_epi32(120 << 3));
  // In [2¹⁴, 2¹⁵) a float's steps are 2⁻⁹: adding 2¹⁴ rounds a subnormal.
  const __m512i small =
      _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(bounded, splat(0x1p14f))),
                       _mm512_castps_si512(splat(0x1p14f)));
  const __mmask16 is_small = _mm512_cmp_ps_mask(bounded, splat(0x1p-6f), _CMP_LT_OQ);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i code = _mm512_mask_mov_epi32(_mm512_mask_mov_epi32(normal, is_small, small), is_nan,
                                             _mm512_set1_epi32(0x7f));
  return _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign));
}

inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec load(const Bf16* p) {
  return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load(const F16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load(const E4m3* p) {
  return from_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec load_some(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline Vec load_some(const Bf16* p, int n) {
  return from_bf16(_mm256_maskz_loadu_epi16(first(n), p));
}
inline Vec load_some(const F16* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}
inline Vec load_some(const E4m3* p, int n) { return from_e4m3(_mm_maskz_loadu_epi8(first(n), p)); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline void store(Bf16* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(v));
}
inline void store(F16* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store(E4m3* p, Vec v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_e4m3(v)); }
inline void store_some(float* p, Vec v, int n) { _mm512_mask_storeu_ps(p, first(n), v); }
inline void store_some(Bf16* p, Vec v, int n) { _mm256_mask_storeu_epi16(p, first(n), to_bf16(v)); }
inline void store_some(F16* p, Vec v, int n) {
  _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_some(E4m3* p, Vec v, int n) { _mm_mask_storeu_epi8(p, first(n), to_e4m3(v)); }

// Cephes' expf on 16 lanes: 2 ulp; 0 below −87.3, inf above 88.7.
inline Vec exp(Vec x) {
  const Vec n = _mm512_roundscale_ps(_mm512_mul_ps(x, splat(1.44269504088896341f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  Vec r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(_mm512_mul_ps(p, r), r, _mm512_add_ps(r, splat(1.f)));
  const Vec y = _mm512_scalef_ps(p, n);
  const __mmask16 low = _mm512_cmp_ps_mask(x, splat(-87.33654f), _CMP_LT_OQ);
  const __mmask16 high = _mm512_cmp_ps_mask(x, splat(88.72284f), _CMP_GT_OQ);
  return _mm512_mask_mov_ps(_mm512_mask_mov_ps(y, low, zero()), high, splat(__builtin_inff()));
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
