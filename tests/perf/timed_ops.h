#pragma once
// A backend's operators, each between two events while they are being timed: where a step's time
// goes, without a profiler. Only for steps that queue their operators themselves (no graphs).

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "cuda/runtime/handles.h"

namespace quire::perf {

class TimedOps final : public Ops {
 public:
  explicit TimedOps(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  // For the next step: its first operator stands behind a pause, so that the host, which queues
  // three things for each, is ahead of the device and none waits for it.
  void begin_step(double pause_seconds);
  struct Sum {
    double seconds = 0;
    int times = 0;
  };
  struct Times {
    std::map<std::string, Sum> operators;
    double between = 0;  // seconds from an operator's end to the begin of the next in its step
  };
  // Of the steps since the last call; waits for them, and times no further ones.
  Times end();

  const OpsTraits& traits() const override { return ops_->traits(); }
  void begin_choosing() override { ops_->begin_choosing(); }
  void end_choosing() override { ops_->end_choosing(); }

  void embedding(TensorView out, TensorView table, TensorView ids, StreamRef stream) override {
    timed("embedding", nullptr, stream, [&] { ops_->embedding(out, table, ids, stream); });
  }
  void embedding_share(TensorView out, TensorView table, std::int64_t first, TensorView ids,
                       StreamRef stream) override {
    timed("embedding_share", nullptr, stream,
          [&] { ops_->embedding_share(out, table, first, ids, stream); });
  }
  void gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef stream) override {
    timed("gather_rows", nullptr, stream, [&] { ops_->gather_rows(out, x, rows, stream); });
  }
  void linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
              StreamRef stream) override {
    timed("linear", &weight, stream, [&] { ops_->linear(out, x, weight, bias, stream); });
  }
  void rms_norm(TensorView out, TensorView x, TensorView weight, float eps, float weight_offset,
                StreamRef stream) override {
    timed("rms_norm", nullptr, stream,
          [&] { ops_->rms_norm(out, x, weight, eps, weight_offset, stream); });
  }
  void add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                    float weight_offset, StreamRef stream) override {
    timed("add_rms_norm", nullptr, stream,
          [&] { ops_->add_rms_norm(out, residual, x, weight, eps, weight_offset, stream); });
  }
  void add(TensorView out, TensorView a, TensorView b, StreamRef stream) override {
    timed("add", nullptr, stream, [&] { ops_->add(out, a, b, stream); });
  }
  void scale(TensorView x, float factor, StreamRef stream) override {
    timed("scale", nullptr, stream, [&] { ops_->scale(x, factor, stream); });
  }
  void rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
            StreamRef stream) override {
    timed("rope", nullptr, stream, [&] { ops_->rope(x, positions, cos_sin, style, stream); });
  }
  void gated_activation(TensorView out, TensorView gate_up, Activation activation,
                        StreamRef stream) override {
    timed("gated_activation", nullptr, stream,
          [&] { ops_->gated_activation(out, gate_up, activation, stream); });
  }
  bool fused_linear(const FusedLinearArgs& args, StreamRef stream) override {
    bool done = false;
    timed("fused_linear", &args.weight.data, stream,
          [&] { done = ops_->fused_linear(args, stream); });
    if (timing_ && !done) intervals_.pop_back();
    return done;
  }
  void kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                TensorView slots, CacheScale scale, StreamRef stream) override {
    timed("kv_write", nullptr, stream,
          [&] { ops_->kv_write(k_cache, v_cache, k, v, slots, scale, stream); });
  }
  void prepare_heads(const HeadArgs& args, StreamRef stream) override {
    timed("prepare_heads", nullptr, stream, [&] { ops_->prepare_heads(args, stream); });
  }
  void paged_attention(const AttentionArgs& args, StreamRef stream) override {
    timed("paged_attention", nullptr, stream, [&] { ops_->paged_attention(args, stream); });
  }
  void mask_logits(TensorView logits, const MaskArgs& args, StreamRef stream) override {
    timed("mask_logits", nullptr, stream, [&] { ops_->mask_logits(logits, args, stream); });
  }
  void bias_logits(TensorView logits, const BiasArgs& args, StreamRef stream) override {
    timed("bias_logits", nullptr, stream, [&] { ops_->bias_logits(logits, args, stream); });
  }
  void penalize_logits(TensorView logits, const PenaltyArgs& args, StreamRef stream) override {
    timed("penalize_logits", nullptr, stream, [&] { ops_->penalize_logits(logits, args, stream); });
  }
  void set_token_counts(TensorView counts, const TokenCountArgs& args, StreamRef stream) override {
    timed("set_token_counts", nullptr, stream,
          [&] { ops_->set_token_counts(counts, args, stream); });
  }
  void count_tokens(TensorView counts, TensorView slots, TensorView tokens,
                    StreamRef stream) override {
    timed("count_tokens", nullptr, stream,
          [&] { ops_->count_tokens(counts, slots, tokens, stream); });
  }
  void sample(TensorView tokens, TensorView logits, const SamplingArgs& args,
              StreamRef stream) override {
    timed("sample", nullptr, stream, [&] { ops_->sample(tokens, logits, args, stream); });
  }
  void log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
                 TensorView token_rank, TensorView logits, TensorView tokens,
                 StreamRef stream) override {
    timed("log_probs", nullptr, stream, [&] {
      ops_->log_probs(top_ids, top_values, token_value, token_rank, logits, tokens, stream);
    });
  }
  void copy(TensorView out, TensorView x, StreamRef stream) override {
    timed("copy", nullptr, stream, [&] { ops_->copy(out, x, stream); });
  }
  void soft_cap(TensorView x, float cap, StreamRef stream) override {
    timed("soft_cap", nullptr, stream, [&] { ops_->soft_cap(x, cap, stream); });
  }
  void activation(TensorView out, TensorView x, Activation activation, StreamRef stream) override {
    timed("activation", nullptr, stream, [&] { ops_->activation(out, x, activation, stream); });
  }
  void sigmoid_gate(TensorView x, TensorView gate, StreamRef stream) override {
    timed("sigmoid_gate", nullptr, stream, [&] { ops_->sigmoid_gate(x, gate, stream); });
  }
  void head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream) override {
    timed("head_linear", &weight, stream, [&] { ops_->head_linear(out, x, weight, stream); });
  }
  void quantized_linear(TensorView out, TensorView x, const Weight& weight, TensorView bias,
                        TensorView workspace, StreamRef stream) override {
    timed("quantized_linear", &weight.data, stream,
          [&] { ops_->quantized_linear(out, x, weight, bias, workspace, stream); });
  }
  void quantized_embedding(TensorView out, const Weight& weight, std::int64_t first, TensorView ids,
                           StreamRef stream) override {
    timed("quantized_embedding", nullptr, stream,
          [&] { ops_->quantized_embedding(out, weight, first, ids, stream); });
  }
  void mla_attention(const MlaArgs& args, StreamRef stream) override {
    timed("mla_attention", nullptr, stream, [&] { ops_->mla_attention(args, stream); });
  }
  void mla_prompt_attention(const MlaPromptArgs& args, StreamRef stream) override {
    timed("mla_prompt_attention", nullptr, stream,
          [&] { ops_->mla_prompt_attention(args, stream); });
  }
  void moe_route(const MoeRouteArgs& args, StreamRef stream) override {
    timed("moe_route", nullptr, stream, [&] { ops_->moe_route(args, stream); });
  }
  void moe_experts(const MoeExpertsArgs& args, StreamRef stream) override {
    timed("moe_experts", nullptr, stream, [&] { ops_->moe_experts(args, stream); });
  }
  void causal_conv(const ConvArgs& args, StreamRef stream) override {
    timed("causal_conv", nullptr, stream, [&] { ops_->causal_conv(args, stream); });
  }
  void gated_delta_rule(const DeltaRuleArgs& args, StreamRef stream) override {
    timed("gated_delta_rule", nullptr, stream, [&] { ops_->gated_delta_rule(args, stream); });
  }
  void selective_scan(const ScanArgs& args, StreamRef stream) override {
    timed("selective_scan", nullptr, stream, [&] { ops_->selective_scan(args, stream); });
  }
  void gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight, float eps,
                      bool norm_first, StreamRef stream) override {
    timed("gated_rms_norm", nullptr, stream,
          [&] { ops_->gated_rms_norm(out, x, gate, weight, eps, norm_first, stream); });
  }
  void copy_blocks(TensorView pages, TensorView to, TensorView from, StreamRef stream) override {
    timed("copy_blocks", nullptr, stream, [&] { ops_->copy_blocks(pages, to, from, stream); });
  }
  void zero_blocks(TensorView pages, TensorView ids, StreamRef stream) override {
    timed("zero_blocks", nullptr, stream, [&] { ops_->zero_blocks(pages, ids, stream); });
  }
  void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes,
                          StreamRef stream) override {
    timed("write_block_tables", nullptr, stream,
          [&] { ops_->write_block_tables(groups, writes, stream); });
  }
  void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows,
                           StreamRef stream) override {
    timed("gather_block_tables", nullptr, stream,
          [&] { ops_->gather_block_tables(groups, rows, stream); });
  }
  void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                    const ContextParallel& cp, StreamRef stream) override {
    timed("slot_mapping", nullptr, stream, [&] { ops_->slot_mapping(groups, rows, cp, stream); });
  }

 private:
  struct Interval {
    std::string name;
    cuda::EventHandle begin, end;
    bool first;  // of its step
  };
  template <class Body>
  void timed(const char* name, const TensorView* weight, StreamRef stream, const Body& body) {
    if (!timing_) return body();
    begin_operator(name, weight, stream);
    body();
    end_operator(stream);
  }
  void begin_operator(const char* name, const TensorView* weight, StreamRef stream);
  void end_operator(StreamRef stream);

  std::unique_ptr<Ops> ops_;
  std::vector<Interval> intervals_;
  double pause_ = 0;
  bool timing_ = false;
};

}  // namespace quire::perf
