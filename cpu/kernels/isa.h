#pragma once
// What every kernel source includes: the register type and the kernels of this instruction set.

#include "cpu/kernels/vec.h"

namespace quire::cpu::QUIRE_CPU_ISA {

using Index = std::int64_t;

void copy_rows(const Rows& out, const Rows& x, Index width, Index begin, Index end);
void quantize_rows(const Rows& out, const Rows& x, float scale, Index width, Index begin,
                   Index end);
void add(const BinaryArgs&, Index begin, Index end);
void scale(const BinaryArgs&, Index begin, Index end);
void sigmoid_gate(const BinaryArgs&, Index begin, Index end);
void norm(const NormArgs&, Index begin, Index end);
void activation(const ActArgs&, Index begin, Index end);
void rope(const RopeArgs&, Index begin, Index end);
void gemm_f32(const GemmArgs&, Index m_begin, Index m_end, Index n_begin, Index n_end, void*);
void gemm_groups(const GroupGemmArgs&, Index m_begin, Index m_end, Index n_begin, Index n_end);
void quantize_groups(const Rows& x, Index width, int zero, int group, const GroupInputRows& out,
                     Index begin, Index end);
void combine(const Rows& out, const float* y, Index width, const std::int32_t* rows,
             const float* weights, Index count);
void unpack_mxfp4(const std::uint8_t* data, const std::uint8_t* scales, Index groups, Float type,
                  void* out);
void unpack_fp8(const E4m3* codes, Index count, float scale, Float type, void* out);
void attention(const PagedArgs&, const AttentionItem&, float* scratch, float* partial);
void attention_merge(const PagedArgs&, const AttentionItem&, float* partial);
void attention_carry(const PagedArgs&, const AttentionItem&, float* scratch, float* state,
                     bool begins, bool ends);
void conv(const ConvolutionArgs&, Index request, Index begin, Index end);
void delta_rule(const DeltaArgs&, Index request, Index head);
void scan(const ScanLoopArgs&, Index request, Index head, float* scratch);
float row_max(const float* x, Index n);
float row_exp_sum(float* x, Index n, float shift, float factor);

}  // namespace quire::cpu::QUIRE_CPU_ISA
