#include "engine/runner/rank_runner.h"

namespace quire {
namespace {

std::size_t hidden_bytes(const Model& model, int rows) {
  return static_cast<std::size_t>(rows) * model.hidden_size() * size_of(model.dtype());
}

}  // namespace

RankRunner::RankRunner(Device& device, Ops& ops, Model& model, KvMemory& memory,
                       const KvPlan& plan, const RunnerOptions& options)
    : device_(device),
      ops_(ops),
      model_(model),
      memory_(memory),
      options_(options),
      batch_(device, ops, plan.groups(), options.limits),
      workspace_(device.allocate(model.workspace_bytes(options.limits.max_num_batched_tokens,
                                                       options.limits.max_samples()),
                                 MemoryPurpose::activations)),
      hidden_(device.allocate(hidden_bytes(model, options.limits.max_num_batched_tokens),
                              MemoryPurpose::activations)),
      sampled_hidden_(device.allocate(hidden_bytes(model, options.limits.max_samples()),
                                      MemoryPurpose::activations)) {}

TensorView RankRunner::hidden(std::int64_t rows) const {
  return TensorView(hidden_.data(), model_.dtype(), {rows, model_.hidden_size()});
}

ForwardContext RankRunner::context() {
  return {.ops = ops_,
          .stream = device_.stream(),
          .workspace = workspace_,
          .positions = inputs_->positions,
          .query_start = inputs_->query_start,
          .seq_lens = inputs_->seq_lens,
          .max_query_len = inputs_->max_query_len,
          .max_seq_len = inputs_->max_seq_len,
          .groups = inputs_->groups,
          .collectives = options_.collectives};
}

void RankRunner::step(const StepShape& shape, std::span<const BlockId> zero_blocks,
                      std::span<const std::byte> pack) {
  const StreamRef stream = device_.stream();
  memory_.zero_blocks(zero_blocks, stream);
  inputs_ = &batch_.follow(shape, pack, stream);
  const Workspace::Scope scope(workspace_);
  batch_.expand(stream);
  model_.forward(hidden(inputs_->num_tokens), inputs_->ids, context());
}

void RankRunner::logits(int first, int end) {
  const Workspace::Scope scope(workspace_);
  model_.logits({}, hidden(options_.limits.max_num_batched_tokens).rows(first, end), context());
}

void RankRunner::sampled_logits() {
  const Workspace::Scope scope(workspace_);
  const int n = inputs_->num_samples;
  TensorView sampled = hidden(n);
  if (n < inputs_->num_tokens) {
    sampled = TensorView(sampled_hidden_.data(), model_.dtype(), {n, model_.hidden_size()});
    ops_.gather_rows(sampled, hidden(inputs_->num_tokens), inputs_->sample_rows, device_.stream());
  }
  model_.logits({}, sampled, context());
}

}  // namespace quire
