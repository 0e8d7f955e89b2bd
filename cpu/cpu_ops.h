#pragma once
// Ops on CPU threads: a table of the operators in cpu/operators.h, which check shapes, cut the work
// into rows and call this machine's kernels.

#include "backend/draft_ops.h"
#include "backend/encoder_ops.h"
#include "backend/ops.h"
#include "cpu/context.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels/encoder_kernels.h"

namespace quire {

class CpuOps : public Ops, public EncoderOps, public DraftOps {
 public:
  explicit CpuOps(const CpuOptions& options);

  const OpsTraits& traits() const override { return cpu_traits(); }

  void embedding(TensorView out, TensorView table, TensorView ids, StreamRef stream) override;
  void embedding_share(TensorView out, TensorView table, std::int64_t first, TensorView ids,
                       StreamRef stream) override;
  void quantized_embedding(TensorView out, const Weight& weight, std::int64_t first, TensorView ids,
                           StreamRef stream) override;
  void gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef stream) override;
  void linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
              StreamRef stream) override;
  void rms_norm(TensorView out, TensorView x, TensorView weight, float eps, float weight_offset,
                StreamRef stream) override;
  void add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                    float weight_offset, StreamRef stream) override;
  void add(TensorView out, TensorView a, TensorView b, StreamRef stream) override;
  void scale(TensorView x, float factor, StreamRef stream) override;
  void rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
            StreamRef stream) override;
  void gated_activation(TensorView out, TensorView gate_up, Activation activation,
                        StreamRef stream) override;
  void kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                TensorView slots, CacheScale scale, StreamRef stream) override;
  void prepare_heads(const HeadArgs& args, StreamRef stream) override;
  void paged_attention(const AttentionArgs& args, StreamRef stream) override;
  void mask_logits(TensorView logits, const MaskArgs& args, StreamRef stream) override;
  void bias_logits(TensorView logits, const BiasArgs& args, StreamRef stream) override;
  void penalize_logits(TensorView logits, const PenaltyArgs& args, StreamRef stream) override;
  void set_token_counts(TensorView counts, const TokenCountArgs& args, StreamRef stream) override;
  void count_tokens(TensorView counts, TensorView slots, TensorView tokens,
                    StreamRef stream) override;
  void sample(TensorView tokens, TensorView logits, const SamplingArgs& args,
              StreamRef stream) override;
  void log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
                 TensorView token_rank, TensorView logits, TensorView tokens,
                 StreamRef stream) override;

  void draw_drafts(TensorView tokens, TensorView shares, TensorView logits, TensorView places,
                   const SamplingArgs& args, StreamRef stream) override;
  void settle_drafts(const HeldArgs& args, StreamRef stream) override;
  void lag_numbers(TensorView numbers, TensorView at, TensorView line, TensorView lost,
                   StreamRef stream) override;
  void verify_drafts(TensorView logits, const VerifyArgs& args, StreamRef stream) override;

  void copy(TensorView out, TensorView x, StreamRef stream) override;
  void soft_cap(TensorView x, float cap, StreamRef stream) override;
  void activation(TensorView out, TensorView x, Activation activation, StreamRef stream) override;
  void sigmoid_gate(TensorView x, TensorView gate, StreamRef stream) override;
  void head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream) override;
  void quantized_linear(TensorView out, TensorView x, const Weight& weight, TensorView bias,
                        TensorView workspace, StreamRef stream) override;
  void mla_attention(const MlaArgs& args, StreamRef stream) override;
  void mla_prompt_attention(const MlaPromptArgs& args, StreamRef stream) override;
  void moe_route(const MoeRouteArgs& args, StreamRef stream) override;
  void moe_experts(const MoeExpertsArgs& args, StreamRef stream) override;
  void causal_conv(const ConvArgs& args, StreamRef stream) override;
  void gated_delta_rule(const DeltaRuleArgs& args, StreamRef stream) override;
  void selective_scan(const ScanArgs& args, StreamRef stream) override;
  void gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight, float eps,
                      bool norm_first, StreamRef stream) override;
  void layer_norm(TensorView out, TensorView x, TensorView weight, TensorView bias, float eps,
                  StreamRef stream) override;
  void gelu(TensorView x, StreamRef stream) override;
  void encoder_attention(const EncoderAttentionArgs& args, StreamRef stream) override;
  void copy_blocks(TensorView pages, TensorView to, TensorView from, StreamRef stream) override;
  void zero_blocks(TensorView pages, TensorView ids, StreamRef stream) override;
  void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes,
                          StreamRef stream) override;
  void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows,
                           StreamRef stream) override;
  void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                    const ContextParallel& cp, StreamRef stream) override;

 private:
  cpu::Context context_;
  const cpu::EncoderKernels& encoder_kernels_;
};

}  // namespace quire
