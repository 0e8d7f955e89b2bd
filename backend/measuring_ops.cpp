#include "backend/measuring_ops.h"

#include "backend/draft_ops.h"
#include "backend/encoder_ops.h"

namespace quire {
namespace {

class MeasuringOps final : public Ops, public EncoderOps, public DraftOps {
 public:
  explicit MeasuringOps(const OpsTraits& backend) : backend_(backend) {}

  const OpsTraits& traits() const override { return backend_; }

  void embedding(TensorView, TensorView, TensorView, StreamRef) override {}
  void embedding_share(TensorView, TensorView, std::int64_t, TensorView, StreamRef) override {}
  void quantized_embedding(TensorView, const Weight&, std::int64_t, TensorView,
                           StreamRef) override {}
  void gather_rows(TensorView, TensorView, TensorView, StreamRef) override {}
  void linear(TensorView, TensorView, TensorView, TensorView, StreamRef) override {}
  void rms_norm(TensorView, TensorView, TensorView, float, float, StreamRef) override {}
  void add_rms_norm(TensorView, TensorView, TensorView, TensorView, float, float,
                    StreamRef) override {}
  void add(TensorView, TensorView, TensorView, StreamRef) override {}
  void copy(TensorView, TensorView, StreamRef) override {}
  void scale(TensorView, float, StreamRef) override {}
  void rope(TensorView, TensorView, TensorView, RopeStyle, StreamRef) override {}
  void gated_activation(TensorView, TensorView, Activation, StreamRef) override {}
  void kv_write(TensorView, TensorView, TensorView, TensorView, TensorView, CacheScale,
                StreamRef) override {}
  void prepare_heads(const HeadArgs&, StreamRef) override {}
  void paged_attention(const AttentionArgs&, StreamRef) override {}
  void mask_logits(TensorView, const MaskArgs&, StreamRef) override {}
  void bias_logits(TensorView, const BiasArgs&, StreamRef) override {}
  void penalize_logits(TensorView, const PenaltyArgs&, StreamRef) override {}
  void set_token_counts(TensorView, const TokenCountArgs&, StreamRef) override {}
  void count_tokens(TensorView, TensorView, TensorView, StreamRef) override {}
  void sample(TensorView, TensorView, const SamplingArgs&, StreamRef) override {}
  void draw_drafts(TensorView, TensorView, TensorView, TensorView, const SamplingArgs&,
                   StreamRef) override {}
  void settle_drafts(const HeldArgs&, StreamRef) override {}
  void lag_numbers(TensorView, TensorView, TensorView, TensorView, StreamRef) override {}
  void verify_drafts(TensorView, const VerifyArgs&, StreamRef) override {}
  void log_probs(TensorView, TensorView, TensorView, TensorView, TensorView, TensorView,
                 StreamRef) override {}
  void soft_cap(TensorView, float, StreamRef) override {}
  void activation(TensorView, TensorView, Activation, StreamRef) override {}
  void sigmoid_gate(TensorView, TensorView, StreamRef) override {}
  void head_linear(TensorView, TensorView, TensorView, StreamRef) override {}
  void quantized_linear(TensorView, TensorView, const Weight&, TensorView, TensorView,
                        StreamRef) override {}
  void mla_attention(const MlaArgs&, StreamRef) override {}
  void mla_prompt_attention(const MlaPromptArgs&, StreamRef) override {}
  void moe_route(const MoeRouteArgs&, StreamRef) override {}
  void moe_experts(const MoeExpertsArgs&, StreamRef) override {}
  void causal_conv(const ConvArgs&, StreamRef) override {}
  void gated_delta_rule(const DeltaRuleArgs&, StreamRef) override {}
  void selective_scan(const ScanArgs&, StreamRef) override {}
  void gated_rms_norm(TensorView, TensorView, TensorView, TensorView, float, bool,
                      StreamRef) override {}

  void layer_norm(TensorView, TensorView, TensorView, TensorView, float, StreamRef) override {}
  void gelu(TensorView, StreamRef) override {}
  void encoder_attention(const EncoderAttentionArgs&, StreamRef) override {}

  void copy_blocks(TensorView, TensorView, TensorView, StreamRef) override {}
  void zero_blocks(TensorView, TensorView, StreamRef) override {}
  void write_block_tables(std::span<const TableGroup>, const TableWrites&, StreamRef) override {}
  void gather_block_tables(std::span<const TableGroup>, const TableRows&, StreamRef) override {}
  void slot_mapping(std::span<const TableGroup>, const TableRows&, const ContextParallel&,
                    StreamRef) override {}

 private:
  const OpsTraits& backend_;
};

}  // namespace

std::unique_ptr<Ops> make_measuring_ops(const OpsTraits& backend) {
  return std::make_unique<MeasuringOps>(backend);
}

}  // namespace quire
