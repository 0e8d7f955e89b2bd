#include "cpu/cpu_ops.h"

#include <memory>

#include "cpu/cpu_drafts.h"
#include "cpu/cpu_encoder.h"
#include "cpu/kernel_choice.h"
#include "cpu/operators.h"

namespace quire {

CpuOps::CpuOps(const CpuOptions& options)
    : context_{.pool = ThreadPool(options.threads > 0 ? options.threads : available_cores()),
               .kernels = choose_kernels(options.best_isa)},
      encoder_kernels_(cpu::choose_encoder_kernels(options.best_isa)) {}

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) {
  return std::make_unique<CpuOps>(options);
}

void CpuOps::embedding(TensorView out, TensorView table, TensorView ids, StreamRef) {
  cpu::embedding(context_, out, table, ids);
}
void CpuOps::embedding_share(TensorView out, TensorView table, std::int64_t first, TensorView ids,
                             StreamRef) {
  cpu::embedding_share(context_, out, table, first, ids);
}
void CpuOps::quantized_embedding(TensorView out, const Weight& weight, std::int64_t first,
                                 TensorView ids, StreamRef) {
  cpu::quantized_embedding(context_, out, weight, first, ids);
}
void CpuOps::gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef) {
  cpu::gather_rows(context_, out, x, rows);
}
void CpuOps::linear(TensorView out, TensorView x, TensorView weight, TensorView bias, StreamRef) {
  cpu::linear(context_, out, x, weight, bias);
}
void CpuOps::rms_norm(TensorView out, TensorView x, TensorView weight, float eps,
                      float weight_offset, StreamRef) {
  cpu::rms_norm(context_, out, x, weight, eps, weight_offset);
}
void CpuOps::add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight,
                          float eps, float weight_offset, StreamRef) {
  cpu::add_rms_norm(context_, out, residual, x, weight, eps, weight_offset);
}
void CpuOps::add(TensorView out, TensorView a, TensorView b, StreamRef) {
  cpu::add(context_, out, a, b);
}
void CpuOps::scale(TensorView x, float factor, StreamRef) { cpu::scale(context_, x, factor); }
void CpuOps::rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
                  StreamRef) {
  cpu::rope(context_, x, positions, cos_sin, style);
}
void CpuOps::gated_activation(TensorView out, TensorView gate_up, Activation activation,
                              StreamRef) {
  cpu::gated_activation(context_, out, gate_up, activation);
}
void CpuOps::kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                      TensorView slots, CacheScale scale, StreamRef) {
  cpu::kv_write(context_, k_cache, v_cache, k, v, slots, scale);
}
void CpuOps::prepare_heads(const HeadArgs& args, StreamRef) { cpu::prepare_heads(context_, args); }
void CpuOps::paged_attention(const AttentionArgs& args, StreamRef) {
  cpu::paged_attention(context_, args);
}
void CpuOps::mask_logits(TensorView logits, const MaskArgs& args, StreamRef) {
  cpu::mask_logits(context_, logits, args);
}
void CpuOps::bias_logits(TensorView logits, const BiasArgs& args, StreamRef) {
  cpu::bias_logits(logits, args);
}
void CpuOps::penalize_logits(TensorView logits, const PenaltyArgs& args, StreamRef) {
  cpu::penalize_logits(context_, logits, args);
}
void CpuOps::set_token_counts(TensorView counts, const TokenCountArgs& args, StreamRef) {
  cpu::set_token_counts(counts, args);
}
void CpuOps::count_tokens(TensorView counts, TensorView slots, TensorView tokens, StreamRef) {
  cpu::count_tokens(counts, slots, tokens);
}
void CpuOps::sample(TensorView tokens, TensorView logits, const SamplingArgs& args, StreamRef) {
  cpu::sample(context_, tokens, logits, args);
}
void CpuOps::draw_drafts(TensorView tokens, TensorView shares, TensorView logits, TensorView places,
                         const SamplingArgs& args, StreamRef) {
  cpu::draw_drafts(context_, tokens, shares, logits, places, args);
}
void CpuOps::settle_drafts(const HeldArgs& args, StreamRef) { cpu::settle_drafts(args); }
void CpuOps::lag_numbers(TensorView numbers, TensorView at, TensorView line, TensorView lost,
                         StreamRef) {
  cpu::lag_numbers(numbers, at, line, lost);
}
void CpuOps::verify_drafts(TensorView logits, const VerifyArgs& args, StreamRef) {
  cpu::verify_drafts(context_, logits, args);
}
void CpuOps::log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
                       TensorView token_rank, TensorView logits, TensorView tokens, StreamRef) {
  cpu::log_probs(context_, top_ids, top_values, token_value, token_rank, logits, tokens);
}
void CpuOps::copy(TensorView out, TensorView x, StreamRef) { cpu::copy(context_, out, x); }
void CpuOps::soft_cap(TensorView x, float cap, StreamRef) { cpu::soft_cap(context_, x, cap); }
void CpuOps::activation(TensorView out, TensorView x, Activation activation, StreamRef) {
  cpu::activation(context_, out, x, activation);
}
void CpuOps::sigmoid_gate(TensorView x, TensorView gate, StreamRef) {
  cpu::sigmoid_gate(context_, x, gate);
}
void CpuOps::head_linear(TensorView out, TensorView x, TensorView weight, StreamRef) {
  cpu::head_linear(context_, out, x, weight);
}
void CpuOps::quantized_linear(TensorView out, TensorView x, const Weight& weight, TensorView bias,
                              TensorView, StreamRef) {
  cpu::quantized_linear(context_, out, x, weight, bias);
}
void CpuOps::mla_attention(const MlaArgs& args, StreamRef) { cpu::mla_attention(context_, args); }
void CpuOps::mla_prompt_attention(const MlaPromptArgs& args, StreamRef) {
  cpu::mla_prompt_attention(context_, args);
}
void CpuOps::layer_norm(TensorView out, TensorView x, TensorView weight, TensorView bias, float eps,
                        StreamRef) {
  cpu::layer_norm(context_, encoder_kernels_, out, x, weight, bias, eps);
}
void CpuOps::gelu(TensorView x, StreamRef) { cpu::gelu(context_, encoder_kernels_, x); }
void CpuOps::encoder_attention(const EncoderAttentionArgs& args, StreamRef) {
  cpu::encoder_attention(context_, encoder_kernels_, args);
}
void CpuOps::moe_route(const MoeRouteArgs& args, StreamRef) { cpu::moe_route(context_, args); }
void CpuOps::moe_experts(const MoeExpertsArgs& args, StreamRef) {
  cpu::moe_experts(context_, args);
}
void CpuOps::causal_conv(const ConvArgs& args, StreamRef) { cpu::causal_conv(context_, args); }
void CpuOps::gated_delta_rule(const DeltaRuleArgs& args, StreamRef) {
  cpu::gated_delta_rule(context_, args);
}
void CpuOps::selective_scan(const ScanArgs& args, StreamRef) {
  cpu::selective_scan(context_, args);
}
void CpuOps::gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight,
                            float eps, bool norm_first, StreamRef) {
  cpu::gated_rms_norm(context_, out, x, gate, weight, eps, norm_first);
}
void CpuOps::copy_blocks(TensorView pages, TensorView to, TensorView from, StreamRef) {
  cpu::copy_blocks(context_, pages, to, from);
}
void CpuOps::zero_blocks(TensorView pages, TensorView ids, StreamRef) {
  cpu::zero_blocks(context_, pages, ids);
}
void CpuOps::write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes,
                                StreamRef) {
  cpu::write_block_tables(groups, writes);
}
void CpuOps::gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows,
                                 StreamRef) {
  cpu::gather_block_tables(groups, rows);
}
void CpuOps::slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                          const ContextParallel& cp, StreamRef) {
  cpu::slot_mapping(groups, rows, cp);
}

}  // namespace quire
