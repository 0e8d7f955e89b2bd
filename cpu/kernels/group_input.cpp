// Inputs of products with weights in groups: 8-bit codes with a scale for 32 columns, and the sums
// of codes that zeros and minima of weights are multiplied by.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

constexpr int kGroup = 32;
// Adding 3 · 2²² rounds to an integer, to even at a half, that is the difference of the bits.
constexpr float kShift = 12582912.f;
constexpr std::int32_t kShiftBits = 0x4b400000;
constexpr float kLeast = 1e-35f;  // 127 times its inverse is a number

// 32 numbers of x.
#if defined(__AVX512F__)
class Input32 {
 public:
  template <class T>
  explicit Input32(const T* x) : v_{load(x), load(x + kLanes)} {}

  // Magnitudes in the order of their bits.
  float largest() const {
    const __m512i size = _mm512_max_epi32(bits(v_[0]), bits(v_[1]));
    return __builtin_bit_cast(float, _mm512_reduce_max_epi32(size));
  }
  // Codes, and the sums of their halves.
  void round(float inverse, std::int8_t* to, std::int32_t (&half)[2]) const {
    for (int i = 0; i < 2; ++i) {
      const Vec shifted = fma(v_[i], splat(inverse), splat(kShift));
      const __m512i codes =
          _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(kShiftBits));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * kLanes), _mm512_cvtepi32_epi8(codes));
      half[i] = _mm512_reduce_add_epi32(codes);
    }
  }

 private:
  static __m512i bits(Vec v) {
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
  }
  Vec v_[2];
};
#else
class Input32 {
 public:
  template <class T>
  explicit Input32(const T* x) {
    for (int i = 0; i < kGroup; i += kLanes) store(v_ + i, load(x + i));
  }

  // Magnitudes in the order of their bits.
  float largest() const {
    std::int32_t top = 0;
    for (const float value : v_) {
      const std::int32_t size = __builtin_bit_cast(std::int32_t, value) & 0x7fffffff;
      top = size > top ? size : top;
    }
    return __builtin_bit_cast(float, top);
  }
  // Codes, and the sums of their halves.
  void round(float inverse, std::int8_t* to, std::int32_t (&half)[2]) const {
    std::uint32_t sums[2] = {};
    for (int i = 0; i < kGroup; ++i) {
      const float shifted = v_[i] * inverse + kShift;
      const std::int32_t code = __builtin_bit_cast(std::int32_t, shifted) - kShiftBits;
      to[i] = static_cast<std::int8_t>(code);
      sums[i / 16] += static_cast<std::uint32_t>(code);  // of what is no number any sum will do
    }
    for (int i = 0; i < 2; ++i) half[i] = static_cast<std::int32_t>(sums[i]);
  }

 private:
  alignas(64) float v_[kGroup];
};
#endif

}  // namespace

// scale = largest magnitude / 127 of 32 columns.
void quantize_groups(const Rows& x, Index width, int zero, int group, const GroupInputRows& out,
                     Index begin, Index end) {
  constexpr Index kBlock = kGroupInputRows;
  with_float(x.type, [&]<class T>(Tag<T>) {
    for (Index r = begin; r < end; ++r) {
      const T* const from = row<T>(x, r);
      const Index within = r % kBlock;
      for (Index g = 0; g < width / kGroup; ++g) {
        const Input32 values(from + g * kGroup);
        const float largest = values.largest();
        // A scale too small to divide by is none.
        const float scale = largest < kLeast ? 0.f : largest / 127.f;  // NaN stays NaN
        const float inverse = largest < kLeast ? 0.f : 127.f / largest;
        const Index at = (r / kBlock * (width / kGroup) + g) * kBlock + within;
        std::int32_t half[2];
        values.round(inverse, out.codes + at * kGroup, half);
        if (group == kGroup) half[0] += half[1];
        out.scales[at] = scale;
        const Index first = 2 * at - within;
        for (int s = 0; s < 2; ++s) {
          out.starts[first + s * kBlock] = -zero * half[s];
          out.mins[first + s * kBlock] = -scale * static_cast<float>(half[s]);
        }
      }
    }
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
