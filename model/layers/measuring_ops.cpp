#include "model/layers/measuring_ops.h"

#include <limits>
#include <vector>

namespace quire {

namespace {

constexpr std::uintptr_t kNowhere = 4096;  // not null: null means an absent optional input

class MeasuringOps final : public Ops {
 public:
  explicit MeasuringOps(const OpsTraits& backend) : backend_(backend) {}

  GraphSupport graph_support(CacheKind kind) const override { return backend_.graph_support(kind); }
  std::size_t moe_workspace_bytes(int num_tokens, const MoeShape& shape) const override {
    return backend_.moe_workspace_bytes(num_tokens, shape);
  }
  std::size_t linear_workspace_bytes(std::int64_t num_tokens, const Weight& weight,
                                     DType x) const override {
    return backend_.linear_workspace_bytes(num_tokens, weight, x);
  }

  void embedding(TensorView, TensorView, TensorView, StreamRef) override {}
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
  void paged_attention(const AttentionArgs&, StreamRef) override {}
  void edit_logits(TensorView, const LogitEdits&, StreamRef) override {}
  void sample(TensorView, TensorView, const SamplingArgs&, StreamRef) override {}
  void log_probs(TensorView, TensorView, TensorView, TensorView, TensorView, TensorView,
                 StreamRef) override {}
  void soft_cap(TensorView, float, StreamRef) override {}
  void activation(TensorView, TensorView, Activation, StreamRef) override {}
  void sigmoid_gate(TensorView, TensorView, StreamRef) override {}
  void head_linear(TensorView, TensorView, TensorView, StreamRef) override {}
  void quantized_linear(TensorView, TensorView, const Weight&, TensorView, TensorView,
                        StreamRef) override {}
  void mla_attention(const MlaArgs&, StreamRef) override {}
  void moe_route(const MoeRouteArgs&, StreamRef) override {}
  void moe_experts(const MoeExpertsArgs&, StreamRef) override {}
  void causal_conv(const ConvArgs&, StreamRef) override {}
  void gated_delta_rule(const DeltaRuleArgs&, StreamRef) override {}
  void selective_scan(const ScanArgs&, StreamRef) override {}
  void gated_rms_norm(TensorView, TensorView, TensorView, TensorView, float, bool,
                      StreamRef) override {}

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

TensorView unbacked(DType dtype, std::initializer_list<std::int64_t> extents) {
  return {reinterpret_cast<void*>(kNowhere), dtype, extents};
}

std::size_t measure_workspace(const OpsTraits& ops, StreamRef stream, int num_tokens,
                              int num_groups,
                              const std::function<void(const ForwardContext&)>& step) {
  MeasuringOps measuring(ops);
  Workspace workspace(Buffer(reinterpret_cast<void*>(kNowhere),
                             std::numeric_limits<std::size_t>::max() / 2,
                             [](void*, std::size_t) {}));
  const std::vector<GroupInputs> groups(static_cast<std::size_t>(num_groups),
                                        {.block_table = unbacked(DType::i32, {num_tokens, 1}),
                                         .slots = unbacked(DType::i64, {num_tokens}),
                                         .state_read = unbacked(DType::i32, {num_tokens}),
                                         .state_write = unbacked(DType::i32, {num_tokens})});
  step({.ops = measuring,
        .stream = stream,
        .workspace = workspace,
        .positions = unbacked(DType::i32, {num_tokens}),
        .query_start = unbacked(DType::i32, {num_tokens + 1}),
        .seq_lens = unbacked(DType::i32, {num_tokens}),
        .max_query_len = num_tokens,
        .max_seq_len = num_tokens,
        .groups = groups});
  return workspace.peak();
}

}  // namespace quire
