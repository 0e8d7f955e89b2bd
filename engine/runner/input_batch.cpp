#include "engine/runner/input_batch.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

TableGeometry geometry_of(const KvGroup& group, const BatchLimits& limits) {
  const int max_blocks = (limits.max_model_len + group.block_size - 1) / group.block_size;
  return {.block_size = group.block_size,
          .kernel_block_size = group.kernel_block_size,
          .max_blocks = max_blocks + group.spec.num_speculative_blocks};
}

}  // namespace

InputBatch::InputBatch(Device& device, Ops& ops, const std::vector<KvGroup>& groups,
                       const BatchLimits& limits, PositionOffset offset)
    : device_(device),
      ops_(ops),
      limits_(limits),
      offset_of_prompt_(std::move(offset)),
      offsets_(limits.max_num_seqs),
      last_sample_of_(limits.max_num_seqs, -1),
      ids_(device, limits.max_num_batched_tokens + limits.max_num_seqs),
      id_index_(device, limits.max_num_batched_tokens),
      gathered_ids_(device.allocate(limits.max_num_batched_tokens * sizeof(std::int32_t))),
      positions_(device, limits.max_num_batched_tokens),
      query_start_(device, limits.max_num_seqs + 1),
      seq_lens_(device, limits.max_num_seqs),
      sample_rows_(device, limits.max_num_seqs),
      group_inputs_(groups.size()),
      uploaded_(device.create_event()) {
  uploaded_->record(device.stream());
  std::vector<TableGeometry> geometries;
  std::vector<std::span<std::int32_t>> tables;
  for (const KvGroup& group : groups) {
    const TableGeometry& geometry = geometries.emplace_back(geometry_of(group, limits));
    const bool is_state = group.spec.kind == KvKind::mamba;
    const std::size_t cells = static_cast<std::size_t>(geometry.columns()) * limits.max_num_seqs;
    groups_.push_back(
        {.is_state = is_state,
         .one_state = group.spec.state_cache_mode == StateCacheMode::none,
         .block_size = group.block_size,
         .slots = StagedArray<std::int64_t>(device, is_state ? 0 : limits.max_num_batched_tokens),
         .state_read = StagedArray<std::int32_t>(device, is_state ? limits.max_num_seqs : 0),
         .state_write = StagedArray<std::int32_t>(device, is_state ? limits.max_num_seqs : 0),
         .table = StagedArray<std::int32_t>(device, cells),
         .host_table = {}});
    GroupArrays& arrays = groups_.back();
    arrays.host_table = arrays.table.write();
    std::ranges::fill(arrays.host_table, 0);
    tables.push_back(arrays.host_table);
  }
  tables_ = std::make_unique<BlockTables>(std::move(geometries), limits.max_num_seqs, tables);
}

TensorView InputBatch::sampled_tokens(int num_samples) const {
  return ids_.view(limits_.max_num_batched_tokens, num_samples);
}

const StepInputs& InputBatch::build(const BatchPlan& plan, StreamRef stream) {
  assert(static_cast<int>(plan.rows.size()) <= limits_.max_num_seqs);
  assert(plan.num_tokens <= limits_.max_num_batched_tokens);
  update_tables(plan);
  fill_tokens(plan, stream);
  uploaded_->wait();
  tables_->gather(row_slots_, static_cast<int>(row_slots_.size()));
  for (int group = 0; group < tables_->num_groups(); ++group) fill_group(group, plan, stream);
  uploaded_->record(stream);
  inputs_.groups = group_inputs_;
  return inputs_;
}

void InputBatch::update_tables(const BatchPlan& plan) {
  row_slots_.clear();
  for (const BatchRow& row : plan.rows) {
    row_slots_.push_back(row.slot);
    if (!row.is_new) continue;
    tables_->clear(row.slot);
    last_sample_of_[row.slot] = -1;
    offsets_[row.slot] = offset_of_prompt_(row.request->num_prompt());
  }
  for (const BlockUpdate& update : plan.block_updates) {
    tables_->append(plan.rows[update.row].slot, update.group, plan.ids_of(update));
  }
}

void InputBatch::fill_tokens(const BatchPlan& plan, StreamRef stream) {
  const auto ids = ids_.write();
  const auto index = id_index_.write();
  const auto positions = positions_.write();
  const auto query_start = query_start_.write();
  const auto seq_lens = seq_lens_.write();
  const auto sample_rows = sample_rows_.write();
  inputs_ = {};
  int token = 0;
  int num_pending = 0;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    query_start[r] = token;
    seq_lens[r] = row.num_computed + row.num_tokens;
    num_pending += fill_row_tokens(row, token, ids, index);
    const std::int32_t first_position = row.num_computed + offsets_[row.slot];
    for (int i = 0; i < row.num_tokens; ++i) positions[token + i] = first_position + i;
    token += row.num_tokens;
    if (row.samples) sample_rows[inputs_.num_samples++] = token - 1;
    inputs_.max_query_len = std::max(inputs_.max_query_len, row.num_tokens);
    inputs_.max_seq_len = std::max(inputs_.max_seq_len, seq_lens[r]);
  }
  query_start[plan.rows.size()] = token;
  // Only after every row has read where its pending token is.
  for (int sample = 0; const BatchRow& row : plan.rows) {
    last_sample_of_[row.slot] = row.samples ? sample++ : -1;
  }

  inputs_.num_tokens = token;
  inputs_.ids = ids_.upload(token, stream);
  inputs_.positions = positions_.upload(token, stream);
  inputs_.query_start = query_start_.upload(plan.rows.size() + 1, stream);
  inputs_.seq_lens = seq_lens_.upload(plan.rows.size(), stream);
  inputs_.sample_rows = sample_rows_.upload(inputs_.num_samples, stream);
  if (num_pending == 0) return;
  const std::int64_t all = limits_.max_num_batched_tokens + limits_.max_num_seqs;
  inputs_.ids = TensorView(gathered_ids_.data(), DType::i32, {token});
  ops_.gather_rows(inputs_.ids.reshape({token, 1}), ids_.view(0, all).reshape({all, 1}),
                   id_index_.upload(token, stream), stream);
}

// How many of the row's tokens are known on the device only.
int InputBatch::fill_row_tokens(const BatchRow& row, int first, std::span<std::int32_t> ids,
                                std::span<std::int32_t> index) {
  const int num_known = row.num_tokens - row.num_pending;
  const auto known = row.request->tokens().subspan(row.num_computed, num_known);
  std::ranges::copy(known, ids.begin() + first);
  for (int i = 0; i < num_known; ++i) index[first + i] = first + i;
  for (int i = num_known; i < row.num_tokens; ++i) {
    assert(last_sample_of_[row.slot] >= 0);
    index[first + i] = limits_.max_num_batched_tokens + last_sample_of_[row.slot];
  }
  return row.num_pending;
}

void InputBatch::fill_group(int group, const BatchPlan& plan, StreamRef stream) {
  GroupArrays& arrays = groups_[group];
  if (arrays.is_state) return fill_states(group, plan, stream);
  const auto slots = arrays.slots.write();
  int token = 0;
  for (const BatchRow& row : plan.rows) {
    tables_->slot_mapping(group, row.slot, row.num_computed, slots.subspan(token, row.num_tokens));
    token += row.num_tokens;
  }
  GroupInputs& inputs = group_inputs_[group];
  inputs.slots = arrays.slots.upload(token, stream);

  const int columns = tables_->geometry(group).columns();
  const RowRange changed = tables_->changed_rows(group);
  if (!changed.empty()) {
    arrays.table.upload(static_cast<std::size_t>(changed.first) * columns,
                        static_cast<std::size_t>(changed.end - changed.first) * columns, stream);
  }
  const auto num_rows = static_cast<std::int64_t>(plan.rows.size());
  inputs.block_table = arrays.table.view(0, static_cast<std::size_t>(num_rows) * columns)
                           .reshape({num_rows, columns});
}

void InputBatch::fill_states(int group, const BatchPlan& plan, StreamRef stream) {
  GroupArrays& arrays = groups_[group];
  const auto read = arrays.state_read.write();
  const auto write = arrays.state_write.write();
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    const int last = row.num_computed + row.num_tokens - 1;
    const auto block_of = [&](int position) {
      return tables_->block_at(group, row.slot,
                               arrays.one_state ? 0 : position / arrays.block_size);
    };
    write[r] = block_of(last);
    read[r] = row.num_computed == 0 ? -1 : block_of(row.num_computed - 1);
  }
  group_inputs_[group].state_read = arrays.state_read.upload(plan.rows.size(), stream);
  group_inputs_[group].state_write = arrays.state_write.upload(plan.rows.size(), stream);
}

}  // namespace quire
