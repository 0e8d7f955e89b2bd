#pragma once
// Rows of a cache, as floats, turned into columns: out[d · kStride + r] = rows[r][d]. Columns
// between count and the next multiple of the lanes hold anything.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {

#if defined(__AVX512F__)

// A 16 × 16 matrix of 32-bit cells in place.
inline __attribute__((always_inline)) void transpose_16(__m512 (&m)[16]) {
  __m512 t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(m[i], m[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(m[i], m[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    m[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    m[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    m[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    m[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(m[i], m[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(m[i], m[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(m[i + 8], m[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(m[i + 8], m[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    m[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    m[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    m[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    m[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// Rows beyond count repeat the last one.
template <int kStride, class K>
void transpose_rows(const K* const* rows, Index count, Index width, float* out) {
  const auto row_at = [&](Index r) { return rows[r < count ? r : count - 1]; };
  for (Index r = 0; r < count; r += 16) {
    for (Index d = 0; d < width; d += 16) {
      __m512 m[16];
      const auto n = static_cast<int>(min_of(16, width - d));
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) m[i] = load(row_at(r + i) + d, n);
      transpose_16(m);
      for (int i = 0; i < n; ++i) store(out + (d + i) * kStride + r, m[i]);
    }
  }
}

// Cells of two bf16, 16 columns of them at a time: put(m[i], row, column of the pair). After an odd
// width the last one ends in 0.
template <class Put>
void for_pairs(const Bf16* const* rows, Index count, Index width, const Put& put) {
  const auto row_at = [&](Index r) { return rows[r < count ? r : count - 1]; };
  for (Index r = 0; r < count; r += 16) {
    for (Index d = 0; d < width; d += 32) {
      __m512 m[16];
      const auto n = static_cast<int>(min_of(32, width - d));
      const auto mask = static_cast<__mmask32>((std::uint64_t{1} << n) - 1);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        m[i] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, row_at(r + i) + d));
      }
      transpose_16(m);
      for (int i = 0; i < n; i += 2) put(m[i / 2], r, d + i);
    }
  }
}

// Pairs stay together.
template <int kStride>
void transpose_pairs(const Bf16* const* rows, Index count, Index width, float* out) {
  for_pairs(rows, count, width,
            [&](__m512 pair, Index r, Index d) { store(out + d / 2 * kStride + r, pair); });
}

// Two bf16 are one cell: half the shuffles.
template <int kStride>
void transpose_rows(const Bf16* const* rows, Index count, Index width, float* out) {
  for_pairs(rows, count, width, [&](__m512 both, Index r, Index d) {
    const __m512i pair = _mm512_castps_si512(both);
    store(out + d * kStride + r, _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)));
    if (d + 1 == width) return;
    store(out + (d + 1) * kStride + r,
          _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(-65536))));
  });
}

#else

template <int kStride, class K>
void transpose_rows(const K* const* rows, Index count, Index width, float* out) {
  for (Index r = 0; r < count; ++r) {
    for_lanes(width, [&](Index d, int n) {
      float lanes[kLanes];
      store(lanes, load(rows[r] + d, n));
      for (int i = 0; i < n; ++i) out[(d + i) * kStride + r] = lanes[i];
    });
  }
}

#endif

}  // namespace quire::cpu::QUIRE_CPU_ISA
