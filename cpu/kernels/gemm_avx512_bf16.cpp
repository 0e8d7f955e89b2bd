// x · Wᵀ on bf16 pairs with vdpbf16ps: products and sums in float32, subnormals are zero.

#include "cpu/kernels/gemm_tile.h"

namespace quire::cpu {
namespace QUIRE_CPU_ISA {

struct Bf16Dot {
  using X = Bf16;
  using W = Bf16;
  using Operand = __m512bh;
  static constexpr int kStep = 32;
  static Operand load(const Bf16* p) { return reinterpret_cast<Operand>(_mm512_loadu_si512(p)); }
  static Operand load(const Bf16* p, int n) {
    return reinterpret_cast<Operand>(_mm512_maskz_loadu_epi16((1u << n) - 1u, p));
  }
  static Vec mul_add(Vec acc, Operand w, Operand x) { return _mm512_dpbf16_ps(acc, w, x); }
};

// The bf16 of each e4m3 without its sign.
struct WideCodes {
  alignas(64) std::uint16_t at[128] = {};

  constexpr WideCodes() {
    constexpr std::uint16_t kSteps[8] = {0,      0x3b00, 0x3b80, 0x3bc0,  // of 2⁻⁹: below 2⁻⁶
                                         0x3c00, 0x3c20, 0x3c40, 0x3c60};
    for (int i = 0; i < 127; ++i) {
      at[i] = i < 8 ? kSteps[i] : static_cast<std::uint16_t>((i << 4) + (120 << 7));
    }
    at[127] = 0x7fc0;  // NaN
  }
};

// The same numbers as from bf16, in the same order.
struct Fp8Dot : Bf16Dot {
  using W = E4m3;
  using Bf16Dot::load;
  static Operand load(const E4m3* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Operand load(const E4m3* p, int n) {
    return widen(_mm256_maskz_loadu_epi8((1u << n) - 1u, p));
  }

 private:
  static constexpr WideCodes kWide{};

  static __m512i quarter(int i) { return _mm512_load_si512(kWide.at + 32 * i); }
  static Operand widen(__m256i codes) {
    const __m512i wide = _mm512_cvtepu8_epi16(codes);
    const __m512i low = _mm512_permutex2var_epi16(quarter(0), wide, quarter(1));
    const __m512i high = _mm512_permutex2var_epi16(quarter(2), wide, quarter(3));
    const __mmask32 is_high = _mm512_test_epi16_mask(wide, _mm512_set1_epi16(0x40));
    const __m512i size = _mm512_mask_mov_epi16(low, is_high, high);
    constexpr int kAndOr = 0xea;  // (a & b) | c
    return reinterpret_cast<Operand>(_mm512_ternarylogic_epi32(
        _mm512_slli_epi16(wide, 8), _mm512_set1_epi16(-0x8000), size, kAndOr));
  }
};

}  // namespace QUIRE_CPU_ISA

void gemm_avx512_bf16(const GemmArgs& args, std::int64_t m_begin, std::int64_t m_end,
                      std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  namespace isa = QUIRE_CPU_ISA;
  if (args.w_type == Float::e4m3) {
    return isa::gemm_blocks<isa::Fp8Dot>(args, m_begin, m_end, n_begin, n_end, scratch);
  }
  isa::gemm_blocks<isa::Bf16Dot>(args, m_begin, m_end, n_begin, n_end, scratch);
}

}  // namespace quire::cpu
