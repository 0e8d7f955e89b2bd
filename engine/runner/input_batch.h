#pragma once
// A plan as arrays on the device: token ids, positions, block tables, slots, states. Rows are
// requests in the plan's order; what a request has from step to step (its block table, its
// position offset) lies in its slot. Engine thread only.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/staged_array.h"
#include "engine/kv_cache/plan.h"
#include "engine/runner/block_tables.h"
#include "engine/scheduler/batch_plan.h"
#include "model/forward_context.h"

namespace quire {

struct BatchLimits {
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  int max_model_len = 0;  // tokens
};

// One step's arrays; views are on the device.
struct StepInputs {
  TensorView ids;          // i32 [T]
  TensorView positions;    // i32 [T]
  TensorView query_start;  // i32 [R + 1]
  TensorView seq_lens;     // i32 [R]
  TensorView sample_rows;  // i32 [S]: the token whose hidden state each sampled row needs
  std::span<const GroupInputs> groups;
  int num_tokens = 0;
  int num_samples = 0;
  int max_query_len = 0;
  int max_seq_len = 0;
};

class InputBatch {
 public:
  // Added to the positions of a request whose prompt has so many tokens.
  using PositionOffset = std::function<int(int num_prompt_tokens)>;

  InputBatch(Device& device, Ops& ops, const std::vector<KvGroup>& groups,
             const BatchLimits& limits, PositionOffset offset);

  // Valid until the next call.
  const StepInputs& build(const BatchPlan& plan, StreamRef stream);

  // Where the step's draw goes, i32 [S]. The next step's pending tokens are read from there.
  TensorView sampled_tokens(int num_samples) const;

  const BlockTables& tables() const { return *tables_; }

 private:
  // Of one KV cache group. State groups have states instead of slots.
  struct GroupArrays {
    bool is_state = false;
    bool one_state = false;  // one block for the whole request
    int block_size = 0;
    StagedArray<std::int64_t> slots;
    StagedArray<std::int32_t> state_read;
    StagedArray<std::int32_t> state_write;
    StagedArray<std::int32_t> table;  // [max_num_seqs, columns]
    std::span<std::int32_t> host_table;
  };

  void update_tables(const BatchPlan& plan);
  void fill_tokens(const BatchPlan& plan, StreamRef stream);
  int fill_row_tokens(const BatchRow& row, int first, std::span<std::int32_t> ids,
                      std::span<std::int32_t> index);
  void fill_group(int group, const BatchPlan& plan, StreamRef stream);
  void fill_states(int group, const BatchPlan& plan, StreamRef stream);

  Device& device_;
  Ops& ops_;
  const BatchLimits limits_;
  PositionOffset offset_of_prompt_;
  std::vector<GroupArrays> groups_;
  std::unique_ptr<BlockTables> tables_;
  std::vector<std::int32_t> offsets_;         // by slot
  std::vector<std::int32_t> last_sample_of_;  // by slot: row of sampled_tokens(), −1: none
  std::vector<std::int32_t> row_slots_;       // by row

  // Token ids of the host, [max_num_batched_tokens], then what the step before has drawn,
  // [max_num_seqs]: one array, so that one gather can read both.
  StagedArray<std::int32_t> ids_;
  StagedArray<std::int32_t> id_index_;
  Buffer gathered_ids_;
  StagedArray<std::int32_t> positions_, query_start_, seq_lens_, sample_rows_;
  std::vector<GroupInputs> group_inputs_;
  std::unique_ptr<Event> uploaded_;  // block tables have one host copy: see build()
  StepInputs inputs_;
};

}  // namespace quire
