// This instruction set's kernels as a table.

#include "cpu/kernels/isa.h"

namespace quire::cpu {

#define QUIRE_JOIN(a, b) a##b
#define QUIRE_TABLE(isa) QUIRE_JOIN(kernels_, isa)

const Kernels& QUIRE_TABLE(QUIRE_CPU_ISA)() {
  namespace isa = QUIRE_CPU_ISA;
  static constexpr Kernels kTable = {
      .copy_rows = isa::copy_rows,
      .quantize_rows = isa::quantize_rows,
      .norm = isa::norm,
      .activation = isa::activation,
      .add = isa::add,
      .scale = isa::scale,
      .sigmoid_gate = isa::sigmoid_gate,
      .rope = isa::rope,
      .gemm_f32 = isa::gemm_f32,
      .gemm_bf16 = nullptr,
      .packs_bf16 = false,
      .gemm_groups = isa::gemm_groups,
      .quantize_groups = isa::quantize_groups,
      .combine = isa::combine,
      .unpack_mxfp4 = isa::unpack_mxfp4,
      .unpack_fp8 = isa::unpack_fp8,
      .attention = isa::attention,
      .attention_merge = isa::attention_merge,
      .attention_carry = isa::attention_carry,
      .conv = isa::conv,
      .delta_rule = isa::delta_rule,
      .scan = isa::scan,
      .row_max = isa::row_max,
      .row_exp_sum = isa::row_exp_sum,
  };
  return kTable;
}

}  // namespace quire::cpu
