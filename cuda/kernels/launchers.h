#pragma once
// Launchers of the kernels, by family; cuda_ops.cpp is their caller. Shapes as in backend/ops.h.
// Each throws CudaError when the launch fails and returns before the kernel has run.

#include <cuda_runtime.h>

#include "backend/ops.h"

namespace quire::cuda {

inline cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle()); }

// norm.cu
void rms_norm(TensorView out, TensorView x, TensorView weight, float eps, float weight_offset,
              StreamRef stream);
void add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                  float weight_offset, StreamRef stream);

// gated_norm.cu
void gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight, float eps,
                    bool norm_first, StreamRef stream);

// conv.cu, delta_net.cu, ssm.cu
void causal_conv(const ConvArgs& args, StreamRef stream);
void gated_delta_rule(const DeltaRuleArgs& args, StreamRef stream);
void selective_scan(const ScanArgs& args, StreamRef stream);

// fp8_linear.cu: products in fp8, x rounded to it. For other weights and devices there is
// quantized_linear(), and x stays as it is.
class Gemm;
void fp8_linear(Gemm& gemm, TensorView out, TensorView x, const Weight& weight, TensorView bias,
                TensorView workspace, StreamRef stream);
// x [rows, K] to e4m3, with a scale for each 128 elements of a row; scales f32 [⌈K / 128⌉, rows].
// codes may have more rows, which become zeros.
void quantize_groups(TensorView codes, TensorView scales, TensorView x, StreamRef stream);

// interleave.cu: x [rows, K] with each 32 elements in the order that MXFP4's warpgroup products
// take (interleaved() in cuda/device/mxfp4.cuh). bf16, rows at multiples of 16 bytes.
void interleave_groups(TensorView out, TensorView x, StreamRef stream);

// moe_route.cu, moe_experts.cu
void moe_route(const MoeRouteArgs& args, StreamRef stream);
void moe_experts(const MoeExpertsArgs& args, StreamRef stream);
void quantized_linear(TensorView out, TensorView x, const Weight& weight, TensorView bias,
                      StreamRef stream);

// small_linear.cu: fused_linear of at most eight rows in bf16 or f16, the weight in their dtype or
// in fp8; out and bias of any floating-point dtype.
bool small_linear_supports(const FusedLinearArgs& args);
void small_linear(const FusedLinearArgs& args, StreamRef stream);
// few_fragments.cu: likewise of packed integers, without activation; with nothing on either side of
// the product at most kFewRows rows.
bool few_fragments_fuses(const FusedLinearArgs& args);
void few_fragments(const FusedLinearArgs& args, StreamRef stream);

// elementwise.cu
void add(TensorView out, TensorView a, TensorView b, StreamRef stream);
void scale(TensorView x, float factor, StreamRef stream);
void gated_activation(TensorView out, TensorView gate_up, Activation activation, StreamRef stream);

// strided.cu
void copy(TensorView out, TensorView x, StreamRef stream);
void soft_cap(TensorView x, float cap, StreamRef stream);
void activation(TensorView out, TensorView x, Activation kind, StreamRef stream);
void sigmoid_gate(TensorView x, TensorView gate, StreamRef stream);
void add_strided(TensorView out, TensorView a, TensorView b, StreamRef stream);
void scale_strided(TensorView x, float factor, StreamRef stream);
void gated_activation_strided(TensorView out, TensorView gate_up, Activation kind,
                              StreamRef stream);

// block_copy.cu
void copy_blocks(TensorView pages, TensorView to, TensorView from, StreamRef stream);
void zero_blocks(TensorView pages, TensorView ids, StreamRef stream);
// Whether what was compiled runs on the current device: an error where nothing was for it.
cudaError_t find_kernel();

// block_tables.cu
void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes,
                        StreamRef stream);
void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows,
                         StreamRef stream);
void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                  const ContextParallel& cp, StreamRef stream);

// rope.cu
void rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
          StreamRef stream);

// rows.cu, fragment_rows.cu
void embedding(TensorView out, TensorView table, TensorView ids, StreamRef stream);
void embedding_share(TensorView out, TensorView table, std::int64_t first, TensorView ids,
                     StreamRef stream);
void quantized_embedding(TensorView out, const Weight& weight, std::int64_t first, TensorView ids,
                         StreamRef stream);
void gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef stream);

// kv_write.cu
void kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v, TensorView slots,
              CacheScale scale, StreamRef stream);

// heads.cu
void prepare_heads(const HeadArgs& args, StreamRef stream);

// logit_edits.cu
void mask_logits(TensorView logits, const MaskArgs& args, StreamRef stream);
void bias_logits(TensorView logits, const BiasArgs& args, StreamRef stream);
void penalize_logits(TensorView logits, const PenaltyArgs& args, StreamRef stream);
void set_token_counts(TensorView counts, const TokenCountArgs& args, StreamRef stream);
void count_tokens(TensorView counts, TensorView slots, TensorView tokens, StreamRef stream);

}  // namespace quire::cuda
