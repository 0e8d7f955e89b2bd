// x · Wᵀ in float32, weights widened in registers.

#include "cpu/kernels/gemm_tile.h"
#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {

void gemm_f32(const GemmArgs& args, Index m_begin, Index m_end, Index n_begin, Index n_end,
              void* scratch) {
  with_cache(args.w_type, [&]<class W>(Tag<W>) {
    gemm_blocks<F32Dot<W>>(args, m_begin, m_end, n_begin, n_end, scratch);
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
