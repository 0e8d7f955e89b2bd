#include "engine/runner/rank_runner.h"

namespace quire {
namespace {

std::size_t hidden_bytes(const Model& model, int rows) {
  return static_cast<std::size_t>(rows) * model.hidden_size() * size_of(model.dtype());
}

}  // namespace

RankRunner::RankRunner(Device& device, Ops& ops, Model& model, KvMemory& memory, const KvPlan& plan,
                       const RunnerOptions& options)
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
                                      MemoryPurpose::activations)) {
  for (auto& event : uploaded_) {
    event = device.create_event();
    // in other ranks only: nothing was uploaded yet, so that the first wait is none
    event->record(device.stream());
  }
}

TensorView RankRunner::hidden(std::int64_t rows) const {
  return TensorView(hidden_.data(), model_.dtype(), {rows, model_.hidden_size()});
}

ForwardContext RankRunner::context(int max_seq_len) {
  return {.ops = ops_,
          .stream = device_.stream(),
          .workspace = workspace_,
          .positions = inputs_->positions,
          .query_start = inputs_->query_start,
          .seq_lens = inputs_->seq_lens,
          .max_query_len = inputs_->max_query_len,
          .max_seq_len = max_seq_len,
          .groups = inputs_->groups,
          .collectives = options_.collectives};
}

void RankRunner::follow(const StepShape& shape, std::span<const BlockId> zero_blocks,
                        std::span<const std::byte> pack) {
  const StreamRef stream = device_.stream();
  Event& uploaded = *uploaded_[static_cast<std::size_t>(turn_)];
  turn_ = 1 - turn_;
  uploaded.wait();
  memory_.zero_blocks(zero_blocks, stream);
  inputs_ = &batch_.follow(shape, pack, stream);
  uploaded.record(stream);
}

void RankRunner::step(const StepShape& shape, std::span<const BlockId> zero_blocks,
                      std::span<const std::byte> pack) {
  follow(shape, zero_blocks, pack);
  const Workspace::Scope scope(workspace_);
  batch_.expand(device_.stream());
  ForwardContext context = this->context(inputs_->max_seq_len);
  if (!options_.same_bits) context.host_rows = inputs_->host_rows;
  model_.forward(hidden(inputs_->num_tokens), inputs_->ids, context);
}

void RankRunner::replay(const StepShape& shape, std::span<const BlockId> zero_blocks,
                        std::span<const std::byte> pack) {
  follow(shape, zero_blocks, pack);
  graphs_.replay(shape.graph, device_.stream());
}

// As ModelRunner does: what runs, and what of it is captured, must be the same on all ranks.
void RankRunner::capture(const StepShape& shape, std::span<const std::byte> pack) {
  follow(shape, {}, pack);
  compute_graph(shape.graph);
  device_.synchronize(device_.stream());  // in other ranks only: the next size refills the pack
  auto graph = device_.capture([&] { compute_graph(shape.graph); });
  if (graph != nullptr) graphs_.add(shape.graph, std::move(graph));
}

void RankRunner::compute_graph(const GraphShape& graph) {
  const Workspace::Scope scope(workspace_);
  const ForwardContext context = this->context(options_.limits.max_model_len);
  batch_.expand(context.stream);
  model_.forward(hidden(inputs_->num_tokens), inputs_->ids, context);
  if (graph.is_mixed()) return;
  model_.logits({}, hidden(inputs_->num_tokens), context);
}

void RankRunner::take_draws() {
  options_.collectives->broadcast(batch_.sampled_tokens(inputs_->num_samples), device_.stream());
}

void RankRunner::take_drafts() {
  options_.collectives->broadcast(batch_.drafts(), device_.stream());
}

void RankRunner::logits(int first, int end) {
  const Workspace::Scope scope(workspace_);
  model_.logits({}, hidden(options_.limits.max_num_batched_tokens).rows(first, end),
                context(inputs_->max_seq_len));
}

void RankRunner::sampled_logits() {
  const Workspace::Scope scope(workspace_);
  const int n = inputs_->num_samples;
  TensorView sampled = hidden(n);
  if (n < inputs_->num_tokens) {
    sampled = TensorView(sampled_hidden_.data(), model_.dtype(), {n, model_.hidden_size()});
    ops_.gather_rows(sampled, hidden(inputs_->num_tokens), inputs_->sample_rows, device_.stream());
  }
  model_.logits({}, sampled, context(inputs_->max_seq_len));
}

}  // namespace quire
