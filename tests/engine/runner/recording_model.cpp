#include "tests/engine/runner/recording_model.h"

#include <cmath>

namespace quire::test {
namespace {

template <class T>
std::vector<T> copy_of(TensorView view) {
  if (view.empty()) return {};
  const auto* data = static_cast<const T*>(view.data());
  return {data, data + view.numel()};
}

RecordedGroup record(const GroupInputs& inputs) {
  RecordedGroup group;
  group.slots = copy_of<std::int64_t>(inputs.slots);
  group.state_read = copy_of<std::int32_t>(inputs.state_read);
  group.state_write = copy_of<std::int32_t>(inputs.state_write);
  if (inputs.block_table.empty()) return group;
  for (std::int64_t row = 0; row < inputs.block_table.extent(0); ++row) {
    group.tables.push_back(copy_of<std::int32_t>(inputs.block_table.rows(row, row + 1)));
  }
  return group;
}

KvGroup full_group(std::vector<std::string> layers) {
  KvGroup group;
  group.layers = std::move(layers);
  group.spec.kind = KvKind::full;
  group.spec.num_kv_heads = 1;
  group.spec.head_size = 4;
  group.spec.dtype = DType::f32;
  group.block_size = group.spec.block_size = 8;
  group.kernel_block_size = 4;
  group.page_bytes = page_bytes(group.spec);
  return group;
}

}  // namespace

void RecordingModel::forward(TensorView hidden, TensorView ids, const ForwardContext& context) {
  const auto out = hidden.as<float, 2>();
  const auto id = ids.as<std::int32_t, 1>();
  const auto position = context.positions.as<std::int32_t, 1>();
  for (std::int64_t t = 0; t < ids.extent(0); ++t) {
    out(t, 0) = static_cast<float>(id(t));
    out(t, 1) = static_cast<float>(position(t));
  }
  if (!recording) return;
  RecordedStep& step = steps.emplace_back();
  step.ids = copy_of<std::int32_t>(ids);
  step.positions = copy_of<std::int32_t>(context.positions);
  step.query_start = copy_of<std::int32_t>(context.query_start);
  step.seq_lens = copy_of<std::int32_t>(context.seq_lens);
  for (const GroupInputs& group : context.groups) step.groups.push_back(record(group));
  step.max_query_len = context.max_query_len;
  step.max_seq_len = context.max_seq_len;
}

void RecordingModel::logits(TensorView logits, TensorView hidden, const ForwardContext&) {
  const auto out = logits.as<float, 2>();
  const auto in = hidden.as<float, 2>();
  logits_rows = static_cast<int>(hidden.extent(0));
  for (std::int64_t row = 0; row < hidden.extent(0); ++row) {
    const TokenId best = next(static_cast<TokenId>(in(row, 0)), static_cast<int>(in(row, 1)));
    for (int v = 0; v < kVocab; ++v) out(row, v) = v == best ? 5.f : 0.f;
    if (static_cast<TokenId>(in(row, 0)) == damaged) out(row, kVocab / 2) = std::nanf("");
  }
}

KvPlan attention_plan(int num_blocks, int max_model_len) {
  KvPlan plan;
  plan.num_blocks = num_blocks;
  plan.max_model_len = max_model_len;
  WorkerKvPlan& worker = plan.workers.emplace_back();
  worker.groups = {full_group({"attention.0", "attention.1"})};
  const std::size_t bytes = worker.groups[0].page_bytes * static_cast<std::size_t>(num_blocks);
  worker.tensors = {{bytes, {"attention.0"}}, {bytes, {"attention.1"}}};
  plan.block_size = 8;
  return plan;
}

KvPlan hybrid_plan(int num_blocks, int max_model_len, StateCacheMode mode, int state_block_size) {
  KvPlan plan = attention_plan(num_blocks, max_model_len);
  WorkerKvPlan& worker = plan.workers.front();
  KvGroup& states = worker.groups.emplace_back();
  states.layers = {"state.0"};
  states.spec.kind = KvKind::mamba;
  states.spec.state_cache_mode = mode;
  states.spec.states = {{{16}, DType::f32}};
  states.block_size = states.kernel_block_size = states.spec.block_size = state_block_size;
  states.page_bytes = page_bytes(states.spec);
  worker.tensors[0].shared_by.push_back("state.0");
  return plan;
}

}  // namespace quire::test
