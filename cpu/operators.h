#pragma once
// The operators, by family; cpu_ops.cpp is their caller. Shapes as in backend/ops.h. Each has done
// its work when it returns.

#include <span>

#include "backend/ops.h"
#include "cpu/context.h"

namespace quire::cpu {

// cpu_rows.cpp
void embedding(Context& on, TensorView out, TensorView table, TensorView ids);
void embedding_share(Context& on, TensorView out, TensorView table, std::int64_t first,
                     TensorView ids);
void quantized_embedding(Context& on, TensorView out, const Weight& weight, std::int64_t first,
                         TensorView ids);
void gather_rows(Context& on, TensorView out, TensorView x, TensorView rows);
void copy(Context& on, TensorView out, TensorView x);
void rms_norm(Context& on, TensorView out, TensorView x, TensorView weight, float eps,
              float weight_offset);
void add_rms_norm(Context& on, TensorView out, TensorView residual, TensorView x, TensorView weight,
                  float eps, float weight_offset);
void gated_rms_norm(Context& on, TensorView out, TensorView x, TensorView gate, TensorView weight,
                    float eps, bool norm_first);
void add(Context& on, TensorView out, TensorView a, TensorView b);
void scale(Context& on, TensorView x, float factor);
void sigmoid_gate(Context& on, TensorView x, TensorView gate);
void rope(Context& on, TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style);
// What rms_norm and rope give their kernels.
NormArgs norm_args(TensorView out, TensorView x, TensorView weight, float eps, float weight_offset);
RopeArgs rope_args(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style);
void gated_activation(Context& on, TensorView out, TensorView gate_up, Activation activation);
void activation(Context& on, TensorView out, TensorView x, Activation activation);
void soft_cap(Context& on, TensorView x, float cap);
void activate(Context& on, const ActArgs& args, std::int64_t rows);  // what all of them end in

// cpu_linear.cpp
void linear(Context& on, TensorView out, TensorView x, TensorView weight, TensorView bias);
void quantized_linear(Context& on, TensorView out, TensorView x, const Weight& weight,
                      TensorView bias);
void head_linear(Context& on, TensorView out, TensorView x, TensorView weight);

// cpu_moe.cpp
void moe_experts(Context& on, const MoeExpertsArgs& args);

// cpu_route.cpp
void moe_route(Context& on, const MoeRouteArgs& args);

// cpu_attention.cpp
void paged_attention(Context& on, const AttentionArgs& args);
void mla_attention(Context& on, const MlaArgs& args);
// Arguments of the kernels, without scales, sinks, cap and window; what a thread's scratch takes.
PagedArgs paged_args(TensorView out, TensorView q, TensorView k_cache, TensorView v_cache,
                     TensorView block_table, TensorView query_start, TensorView seq_lens);
std::size_t attention_scratch_bytes(const PagedArgs& args);

// cpu_latents.cpp
void mla_prompt_attention(Context& on, const MlaPromptArgs& args);

// cpu_heads.cpp
void kv_write(Context& on, TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
              TensorView slots, CacheScale scale);
void prepare_heads(Context& on, const HeadArgs& args);
// Of a cache too: e4m3 as well.
Float cache_float_of(DType dtype);

// cpu_state.cpp
void causal_conv(Context& on, const ConvArgs& args);
void gated_delta_rule(Context& on, const DeltaRuleArgs& args);
void selective_scan(Context& on, const ScanArgs& args);
void copy_blocks(Context& on, TensorView pages, TensorView to, TensorView from);
void zero_blocks(Context& on, TensorView pages, TensorView ids);

// cpu_logits.cpp
void mask_logits(Context& on, TensorView logits, const MaskArgs& args);
void bias_logits(TensorView logits, const BiasArgs& args);
void penalize_logits(Context& on, TensorView logits, const PenaltyArgs& args);
void set_token_counts(TensorView counts, const TokenCountArgs& args);
void count_tokens(TensorView counts, TensorView slots, TensorView tokens);

// cpu_sampling.cpp
void sample(Context& on, TensorView tokens, TensorView logits, const SamplingArgs& args);
void log_probs(Context& on, TensorView top_ids, TensorView top_values, TensorView token_value,
               TensorView token_rank, TensorView logits, TensorView tokens);

// cpu_tables.cpp
void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes);
void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows);
void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                  const ContextParallel& cp);

}  // namespace quire::cpu
