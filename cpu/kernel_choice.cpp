#include "cpu/kernel_choice.h"

#include <algorithm>

namespace quire {

cpu::Kernels choose_kernels(CpuIsa best_allowed) {
  const CpuIsa isa = std::min(best_allowed, detect_cpu_isa());
#if defined(__x86_64__)
  if (isa >= CpuIsa::avx512) {
    cpu::Kernels kernels = cpu::kernels_avx512();
    if (best_allowed > CpuIsa::avx512 && has_avx512_vnni()) {
      kernels.gemm_groups = cpu::avx512_vnni::gemm_groups;
    }
    if (isa >= CpuIsa::avx512_bf16) {
      kernels.gemm_bf16 = cpu::gemm_avx512_bf16;
      kernels.attention = cpu::avx512_bf16::attention;
      kernels.attention_carry = cpu::avx512_bf16::attention_carry;
    }
    if (isa >= CpuIsa::amx_bf16) {
      kernels.gemm_bf16 = cpu::gemm_amx_bf16;
      kernels.packs_bf16 = true;
    }
    return kernels;
  }
  if (isa >= CpuIsa::avx2) return cpu::kernels_avx2();
#endif
  static_cast<void>(isa);
  return cpu::kernels_portable();
}

}  // namespace quire
