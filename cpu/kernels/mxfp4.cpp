// Microscaling FP4 (OCP MX 1.0): 32 e2m1 values share a power of two.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

inline constexpr int kGroup = 32, kGroupBytes = 16;

// 2^(exponent − 127); 0 would be a subnormal, 255 is NaN in the format.
inline float power_of_two(std::uint8_t exponent) {
  if (exponent == 0) return 5.877471754e-39f;
  if (exponent == 255) return __builtin_nanf("");
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(exponent) << 23);
}

template <class T>
void unpack_group(const std::uint8_t* data, std::uint8_t scale, T* to) {
  static constexpr float kE2m1[16] = {0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                      -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};
  float table[16], values[kGroup];
  for (int i = 0; i < 16; ++i) table[i] = kE2m1[i] * power_of_two(scale);
  for (int i = 0; i < kGroupBytes; ++i) {
    values[2 * i] = table[data[i] & 15];
    values[2 * i + 1] = table[data[i] >> 4];
  }
  for_lanes(kGroup, [&](Index i, int n) { store(to + i, load(values + i, n), n); });
}

#if defined(__AVX512BW__)

// A nibble looks its bf16 up, and the scale is added to its exponent. Scales at the ends, where
// that would leave the normal numbers, take the plain way.
inline constexpr std::uint8_t kLowestScale = 2, kHighestScale = 252;

inline __m512i unpack_bits(const std::uint8_t* data, std::uint8_t scale) {
  const __m512i table = _mm512_broadcast_i64x4(
      _mm256_setr_epi16(0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, -0x8000, -0x4100,
                        -0x4080, -0x4040, -0x4000, -0x3fc0, -0x3f80, -0x3f40));
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i low = _mm_and_si128(bytes, mask);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
  const __m256i codes =
      _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
  const __m512i values = _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(codes), table);
  const __mmask32 nonzero = _mm512_test_epi16_mask(values, _mm512_set1_epi16(0x7fff));
  const auto exponent = static_cast<short>((scale - 127) * 128);
  return _mm512_mask_add_epi16(values, nonzero, values, _mm512_set1_epi16(exponent));
}

inline bool unpack_fast(const std::uint8_t* data, std::uint8_t scale, Bf16* to) {
  if (scale < kLowestScale || scale > kHighestScale) return false;
  _mm512_storeu_si512(to, unpack_bits(data, scale));
  return true;
}

inline bool unpack_fast(const std::uint8_t* data, std::uint8_t scale, float* to) {
  if (scale < kLowestScale || scale > kHighestScale) return false;
  const __m512i bits = unpack_bits(data, scale);
  store(to, from_bf16(_mm512_castsi512_si256(bits)));
  store(to + kLanes, from_bf16(_mm512_extracti64x4_epi64(bits, 1)));
  return true;
}

#endif

template <class T>
bool unpack_fast(const std::uint8_t*, std::uint8_t, T*) {
  return false;
}

}  // namespace

void unpack_mxfp4(const std::uint8_t* data, const std::uint8_t* scales, Index groups, Float type,
                  void* out) {
  with_float(type, [&]<class T>(Tag<T>) {
    T* to = static_cast<T*>(out);
    for (Index g = 0; g < groups; ++g, data += kGroupBytes, to += kGroup) {
      if (!unpack_fast(data, scales[g], to)) unpack_group(data, scales[g], to);
    }
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
