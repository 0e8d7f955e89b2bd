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

}  // namespace QUIRE_CPU_ISA

void gemm_avx512_bf16(const GemmArgs& args, std::int64_t m_begin, std::int64_t m_end,
                      std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  QUIRE_CPU_ISA::gemm_blocks<QUIRE_CPU_ISA::Bf16Dot>(args, m_begin, m_end, n_begin, n_end, scratch);
}

}  // namespace quire::cpu
