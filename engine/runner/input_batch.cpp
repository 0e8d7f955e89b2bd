#include "engine/runner/input_batch.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// Of the kept part of the pack: first the draws.
std::size_t draw_bytes(const BatchLimits& limits) {
  return StagedPack::bytes_of<std::int32_t>(static_cast<std::size_t>(limits.max_samples()));
}

std::size_t draft_bytes(const BatchLimits& limits) {
  return static_cast<std::size_t>(limits.max_drafts) * limits.max_num_seqs * sizeof(std::int32_t);
}

// Of a lagging row, those of its tokens' positions, its length, and where its pending token is.
std::size_t max_lag_cells(const BatchLimits& limits) {
  return static_cast<std::size_t>(limits.max_num_batched_tokens) +
         2 * static_cast<std::size_t>(limits.max_num_seqs);
}

}  // namespace

std::vector<TableGeometry> InputBatch::add_groups(const std::vector<KvGroup>& kv_groups,
                                                  const BatchLimits& limits,
                                                  bool reads_prefixes_once,
                                                  std::vector<Group>& groups) {
  std::vector<TableGeometry> tables;
  for (const KvGroup& kv_group : kv_groups) {
    Group& group = groups.emplace_back();
    group.block_size = kv_group.block_size;
    group.max_blocks = (limits.max_model_len + kv_group.block_size - 1) / kv_group.block_size +
                       kv_group.spec.num_speculative_blocks;
    if (kv_group.spec.kind == KvKind::mamba) {
      group.one_state = kv_group.spec.state_cache_mode == StateCacheMode::none;
      group.num_drafts = kv_group.spec.num_speculative_blocks;
      group.states.emplace(limits.max_num_seqs, group.max_blocks);
      group.running.assign(static_cast<std::size_t>(limits.max_num_seqs), 0);
    } else {
      group.table = static_cast<int>(tables.size());
      group.shares_prefixes = reads_prefixes_once && kv_group.spec.kind == KvKind::full;
      tables.push_back({.block_size = kv_group.block_size,
                        .kernel_block_size = kv_group.kernel_block_size,
                        .max_blocks = group.max_blocks});
    }
  }
  return tables;
}

InputBatch::InputBatch(Device& device, Ops& ops, const std::vector<KvGroup>& groups,
                       const BatchLimits& limits)
    : ops_(ops),
      limits_(limits),
      tables_(device, ops, add_groups(groups, limits, ops.traits().reads_prefixes_once(), groups_),
              {.max_slots = limits.max_num_seqs, .max_tokens = limits.max_num_batched_tokens}),
      last_sample_of_(limits.max_num_seqs, -1),
      held_drafts_(limits.max_num_seqs, 0),
      last_drafts_of_(limits.max_num_seqs, 0),
      first_draft_of_(limits.max_num_seqs, 0),
      draft_columns_(limits.max_num_seqs, 0),
      pack_(device, MemoryPurpose::step_inputs, draw_bytes(limits) + draft_bytes(limits),
            pack_bytes()),
      ids_(device.allocate(limits.max_num_batched_tokens * sizeof(std::int32_t),
                           MemoryPurpose::step_inputs)),
      lost_(limits.max_drafts == 0 ? Buffer()
                                   : device.allocate(limits.max_num_seqs * sizeof(std::int32_t),
                                                     MemoryPurpose::step_inputs)),
      group_inputs_(groups.size()),
      other_inputs_(groups.size()) {}

std::int32_t InputBatch::index_of_draft(int slot, int draft) const {
  const auto first = static_cast<std::int32_t>(draw_bytes(limits_) / sizeof(std::int32_t));
  return first + draft * limits_.max_num_seqs + draft_columns_[slot];
}

TensorView InputBatch::drafts() const {
  const auto first = static_cast<std::int64_t>(draw_bytes(limits_) / sizeof(std::int32_t));
  const std::int64_t count = std::int64_t{limits_.max_drafts} * limits_.max_num_seqs;
  return pack_.whole<std::int32_t>(static_cast<std::size_t>(first + count))
      .rows(first, first + count)
      .reshape({limits_.max_drafts, limits_.max_num_seqs});
}

std::size_t InputBatch::pack_bytes() const {
  const auto ints = StagedPack::bytes_of<std::int32_t>;
  const auto rows = static_cast<std::size_t>(limits_.max_rows());
  const auto states = groups_.size() - static_cast<std::size_t>(tables_.num_groups());
  const auto samples = static_cast<std::size_t>(limits_.max_samples());
  return ints(rows + 1) + 2 * ints(rows) + ints(samples) + ints(rows * tables_.num_groups()) +
         3 * ints(limits_.max_num_batched_tokens) + 2 * states * ints(rows) +
         (limits_.max_drafts > 0 ? states * ints(limits_.max_num_batched_tokens) : 0) +
         (shares_prefixes()
              ? ints(kMostPrefixes + 1) + ints(rows * (1 + limits_.max_drafts)) + 2 * ints(rows)
              : 0) +
         (limits_.max_drafts > 0 ? 3 * ints(rows) + 2 * ints(max_lag_cells(limits_)) : 0) +
         tables_.max_staged_bytes();
}

const StepInputs& InputBatch::build(const BatchPlan& plan, const GraphShape& graph,
                                    StreamRef stream) {
  const auto num_requests = static_cast<int>(plan.rows.size());
  const int num_rows = std::max(graph.num_rows, num_requests);
  const int num_tokens = padded_tokens(plan, graph), num_drafts = padded_drafts(plan, graph);
  assert(num_rows <= limits_.max_rows() && num_tokens <= limits_.max_num_batched_tokens);
  // States would have arrays for drafts, whether there can be any or not.
  assert(!graph.is_mixed() || std::ranges::none_of(groups_, [](auto& g) { return !!g.states; }));
  update_tables(plan);
  pack_.begin();
  add_arrays(num_rows, num_tokens, num_drafts);
  graph_ = graph;
  fill_rows(plan);
  if (shares_prefixes()) fill_shared(plan, graph);
  fill_padding(graph, num_requests, plan.num_tokens);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].states) continue;
    fill_states(groups_[g], plan, add_states(num_rows, num_drafts_ > 0, group_inputs_[g]));
  }
  // A step without drafts may be followed before it is settled.
  for (const BatchRow& row : plan.rows) held_drafts_[row.slot] = 0;
  tables_.stage(pack_);
  if (lags()) add_lags(num_requests);
  pack_.upload(stream);
  tables_.write(stream);
  if (lags()) catch_up(stream);
  return inputs_;
}

StepShape InputBatch::shape() const {
  return {.graph = graph_,
          .num_rows = num_rows_,
          .num_tokens = inputs_.num_tokens,
          .num_drafts = num_drafts_,
          .num_samples = inputs_.num_samples,
          .max_query_len = inputs_.max_query_len,
          .max_seq_len = inputs_.max_seq_len,
          .longest_shared = longest_shared_,
          .num_table_writes = tables_.num_writes(),
          .num_written_blocks = tables_.num_written_blocks()};
}

const StepInputs& InputBatch::follow(const StepShape& shape, std::span<const std::byte> packed,
                                     StreamRef stream) {
  if (shape.num_rows > limits_.max_rows() || shape.num_tokens > limits_.max_num_batched_tokens)
    throw Failure(ErrorCode::internal, "a step is larger than this rank was planned for");
  pack_.begin();
  add_arrays(shape.num_rows, shape.num_tokens, shape.num_drafts);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].states) add_states(shape.num_rows, shape.num_drafts > 0, group_inputs_[g]);
  }
  tables_.stage(pack_, shape.num_table_writes, shape.num_written_blocks);
  const std::span<std::byte> own = pack_.added();
  if (own.size() != packed.size())
    throw Failure(ErrorCode::internal, "a step's pack has " + std::to_string(packed.size()) +
                                           " bytes, this rank's " + std::to_string(own.size()));
  std::ranges::copy(packed, own.begin());
  inputs_.num_samples = shape.num_samples;
  inputs_.max_query_len = shape.max_query_len;
  inputs_.max_seq_len = shape.max_seq_len;
  set_longest_shared(shape.longest_shared);
  inputs_.sample_rows = arrays_.sample_rows.device.rows(0, shape.num_samples);
  pack_.upload(stream);
  tables_.write(stream);
  return inputs_;
}

void InputBatch::expand(StreamRef stream) {
  const std::int64_t all = arrays_.id_index.host.size();
  const std::int64_t cells = (pack_.bytes()) / sizeof(std::int32_t);
  ops_.gather_rows(inputs_.ids.reshape({all, 1}),
                   pack_.whole<std::int32_t>(cells).reshape({cells, 1}), arrays_.id_index.device,
                   stream);
  if (tables_.num_groups() == 0) return;
  tables_.gather(table_rows_, stream);
  tables_.map_slots(table_rows_, inputs_.num_tokens, stream);
}

std::span<const GroupInputs> InputBatch::map_rows(const TableRows& rows, int num_rows,
                                                  int num_tokens, StreamRef stream) {
  if (tables_.num_groups() > 0) {
    tables_.gather(rows, stream);
    tables_.map_slots(rows, num_tokens, stream);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].states) continue;
    other_inputs_[g].block_table = tables_.rows(groups_[g].table, num_rows);
    other_inputs_[g].slots = tables_.slots(groups_[g].table, num_tokens);
  }
  return other_inputs_;
}

void InputBatch::update_tables(const BatchPlan& plan) {
  for (const BatchRow& row : plan.rows) {
    if (!row.is_new) continue;
    tables_.clear(row.slot);
    for (Group& group : groups_) {
      if (group.states) group.states->clear(row.slot);
    }
    last_sample_of_[row.slot] = -1;
    last_drafts_of_[row.slot] = 0;
    held_drafts_[row.slot] = 0;
  }
  for (const BlockUpdate& update : plan.block_updates) {
    const int slot = plan.rows[update.row].slot;
    Group& group = groups_[update.group];
    if (group.states) {
      group.states->append(slot, plan.ids_of(update));
    } else {
      tables_.append(slot, group.table, plan.ids_of(update));
    }
  }
}

void InputBatch::add_arrays(int num_rows, int num_tokens, int num_drafts) {
  const auto ints = [&](int count) { return pack_.add<std::int32_t>(count); };
  arrays_.query_start = ints(num_rows + 1);
  arrays_.seq_lens = ints(num_rows);
  arrays_.slots = ints(num_rows);
  arrays_.sample_rows = ints(std::min(num_rows + num_drafts, limits_.max_samples()));
  arrays_.counts = ints(num_rows * tables_.num_groups());
  arrays_.ids = ints(num_tokens);
  arrays_.id_index = ints(num_tokens);
  arrays_.positions = ints(num_tokens);
  table_rows_ = {.slot = arrays_.slots.device,
                 .counts = arrays_.counts.device.reshape({tables_.num_groups(), num_rows}),
                 .query_start = arrays_.query_start.device,
                 .seq_lens = arrays_.seq_lens.device};
  inputs_ = {.ids = TensorView(ids_.data(), DType::i32, {num_tokens}),
             .positions = arrays_.positions.device,
             .query_start = arrays_.query_start.device,
             .seq_lens = arrays_.seq_lens.device,
             .sample_rows = {},
             .groups = group_inputs_,
             .host_rows = {arrays_.query_start.host, arrays_.seq_lens.host},
             .num_tokens = num_tokens};
  num_rows_ = num_rows;
  num_drafts_ = num_drafts;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].states) continue;
    group_inputs_[g].block_table = tables_.rows(groups_[g].table, num_rows);
    group_inputs_[g].slots = tables_.slots(groups_[g].table, num_tokens);
  }
  if (shares_prefixes()) add_shared(num_rows, num_tokens);
}

InputBatch::StateArrays InputBatch::add_states(int num_rows, bool has_drafts, GroupInputs& inputs) {
  const Ints read = pack_.add<std::int32_t>(num_rows), write = pack_.add<std::int32_t>(num_rows);
  inputs.state_read = read.device;
  inputs.state_write = write.device;
  inputs.token_states = {};
  if (!has_drafts) return {read, write, {}};
  const Ints of_tokens = pack_.add<std::int32_t>(arrays_.ids.host.size());
  inputs.token_states = of_tokens.device;
  return {read, write, of_tokens};
}

void InputBatch::fill_rows(const BatchPlan& plan) {
  const std::size_t num_rows = arrays_.slots.host.size();
  int token = 0;
  lags_.clear();
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    const int seq_len = row.num_computed + row.num_tokens;
    arrays_.query_start.host[r] = token;
    arrays_.seq_lens.host[r] = seq_len;
    arrays_.slots.host[r] = row.slot;
    for (int g = 0; g < tables_.num_groups(); ++g) {
      arrays_.counts.host[g * num_rows + r] = tables_.num_kernel_blocks(g, row.slot);
    }
    fill_row_tokens(row, plan.drafts_of(row), token);
    if (row.num_pending > 0 && last_drafts_of_[row.slot] > 0)
      lags_.push_back({.row = static_cast<int>(r),
                       .first_token = token,
                       .num_tokens = row.num_tokens,
                       .num_drafts = last_drafts_of_[row.slot],
                       .first_draft = first_draft_of_[row.slot],
                       .first_draw = last_sample_of_[row.slot]});
    token += row.num_tokens;
    for (int i = row.samples ? row.num_drafts : -1; i >= 0; --i)
      arrays_.sample_rows.host[inputs_.num_samples++] = token - 1 - i;
    inputs_.max_query_len = std::max(inputs_.max_query_len, row.num_tokens);
    inputs_.max_seq_len = std::max(inputs_.max_seq_len, seq_len);
  }
  arrays_.query_start.host[plan.rows.size()] = token;
  inputs_.sample_rows = arrays_.sample_rows.device.rows(0, inputs_.num_samples);
  // Only after every row has read where its pending token is.
  token = 0;
  for (int sample = 0; const BatchRow& row : plan.rows) {
    token += row.num_tokens;
    last_sample_of_[row.slot] = row.samples ? sample : -1;
    last_drafts_of_[row.slot] = row.num_drafts;
    first_draft_of_[row.slot] = token - row.num_drafts;
    if (row.samples) sample += 1 + row.num_drafts;
  }
}

// Ids come from what the host sends, or where the device alone knows them from the last draw or the
// last drafts. One token is pending at most, as if all drafts before it had held.
void InputBatch::fill_row_tokens(const BatchRow& row, std::span<const TokenId> drafts, int first) {
  assert(row.num_pending <= 1);
  const int before = row.num_tokens - row.num_drafts, num_known = before - row.num_pending;
  const auto ids = arrays_.ids.host.subspan(first, row.num_tokens);
  std::ranges::fill(ids, 0);
  if (num_known > 0)
    std::ranges::copy(row.request->tokens().subspan(row.num_computed, num_known), ids.begin());
  std::ranges::copy(drafts, ids.begin() + before);
  const std::int32_t sent = pack_.index_of(arrays_.ids) + first;
  const std::int32_t position = row.num_computed + row.request->position_offset();
  assert(row.num_pending == 0 || last_sample_of_[row.slot] >= 0);
  for (int i = 0; i < row.num_tokens; ++i) {
    const bool is_pending = i >= num_known && i < before;
    arrays_.id_index.host[first + i] =
        is_pending ? last_sample_of_[row.slot] + last_drafts_of_[row.slot] : sent + i;
    arrays_.positions.host[first + i] = position + i;
  }
  for (int i = 0; i < row.num_drafts; ++i)
    if (drafts[static_cast<std::size_t>(i)] == kUnknownDraft)
      arrays_.id_index.host[first + before + i] = index_of_draft(row.slot, i);
}

// Which of the request's blocks takes the state after the row's tokens. Blocks for drafts are its
// last ones, and it stands before them.
int InputBatch::running_state(const Group& group, const BatchRow& row) {
  if (group.num_drafts > 0) return group.states->count(row.slot) - 1 - group.num_drafts;
  return group.one_state ? 0 : (row.num_computed + row.num_tokens - 1) / group.block_size;
}

// The blocks of drafts may have moved on since; a table that only grows still has them there.
int InputBatch::state_to_read(const Group& group, const BatchRow& row) const {
  if (group.num_drafts > 0 && !row.is_new) return group.running[row.slot] + held_drafts_[row.slot];
  return group.one_state ? 0 : (row.num_computed - 1) / group.block_size;
}

void InputBatch::fill_states(Group& group, const BatchPlan& plan, const StateArrays& arrays) {
  std::ranges::fill(arrays.read.host, -1);
  std::ranges::fill(arrays.write.host, -1);
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    if (row.num_computed > 0)
      arrays.read.host[r] = group.states->at(row.slot, state_to_read(group, row));
    group.running[row.slot] = running_state(group, row);
    arrays.write.host[r] = group.states->at(row.slot, group.running[row.slot]);
  }
  if (num_drafts_ > 0) fill_token_states(group, plan, arrays);
}

// A draft that does not hold leaves the state after the one before it to continue from.
void InputBatch::fill_token_states(const Group& group, const BatchPlan& plan,
                                   const StateArrays& arrays) {
  std::ranges::fill(arrays.of_tokens.host, -1);
  int token = 0;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    token += row.num_tokens;
    if (row.num_drafts == 0) continue;
    arrays.write.host[r] = -1;
    for (int i = 0; i <= row.num_drafts; ++i)
      arrays.of_tokens.host[token - 1 - row.num_drafts + i] =
          group.states->at(row.slot, group.running[row.slot] + i);
  }
}

}  // namespace quire
