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

// The same numbers as from bf16, in the same order.
struct Fp8Dot : Bf16Dot {
  using W = E4m3;
  using Bf16Dot::load;
  static Operand load(const E4m3* p) {
    return _mm512_cvtne2ps_pbh(QUIRE_CPU_ISA::load(p + kLanes), QUIRE_CPU_ISA::load(p));
  }
  static Operand load(const E4m3* p, int n) {
    const Vec high = n > kLanes ? load_some(p + kLanes, n - kLanes) : zero();
    return _mm512_cvtne2ps_pbh(high, load_some(p, n < kLanes ? n : kLanes));
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
