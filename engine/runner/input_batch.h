#pragma once
// A plan as arrays on the device: token ids, positions, block tables, slots, states. Rows are
// requests in the plan's order; what a request has from step to step (its block table) lies
// in its slot. The host sends one copy of a few numbers per row and token;
// expand() makes the rest of them on the device, and so can be part of a graph. Where a row follows
// drafts of a step that the host has not collected, its plan takes all of them to have held, and
// build() has the device correct what was sent by those that did not. Engine thread only.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/staged_pack.h"
#include "engine/kv_plan/plan.h"
#include "engine/runner/block_tables.h"
#include "engine/runner/graph_cache.h"
#include "engine/runner/state_table.h"
#include "engine/scheduler/batch_plan.h"
#include "model/forward_context.h"

namespace quire {

struct BatchLimits {
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  int max_model_len = 0;  // tokens
  int max_drafts = 0;     // of a row; each is one more sample

  int max_rows() const { return max_num_seqs + 1; }  // of a step: one may be padding
  int max_samples() const {
    const std::int64_t all = std::int64_t{max_num_seqs} * (1 + max_drafts);
    return static_cast<int>(
        std::max<std::int64_t>(max_num_seqs, std::min<std::int64_t>(all, max_num_batched_tokens)));
  }
};

// One step's arrays; views are on the device. R and T count padding too.
struct StepInputs {
  TensorView ids;          // i32 [T]
  TensorView positions;    // i32 [T]
  TensorView query_start;  // i32 [R + 1]
  TensorView seq_lens;     // i32 [R]
  TensorView sample_rows;  // i32 [S]: the token whose hidden state each sampled row needs
  std::span<const GroupInputs> groups;
  HostRows host_rows;
  int num_tokens = 0;  // T
  int num_samples = 0;
  int max_query_len = 0;
  int max_seq_len = 0;
};

// What lies in a step's pack, for ranks that are sent the pack and no plan.
struct StepShape {
  GraphShape graph;
  std::int32_t num_rows = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_drafts = 0;
  std::int32_t num_samples = 0;
  std::int32_t max_query_len = 0;
  std::int32_t max_seq_len = 0;
  std::int32_t longest_shared = 0;
  std::int32_t num_table_writes = 0;
  std::int32_t num_written_blocks = 0;
};

class InputBatch {
 public:
  InputBatch(Device& device, Ops& ops, const std::vector<KvGroup>& groups,
             const BatchLimits& limits);

  // Queues the upload; expand() must follow. With fewer rows than the graph's, rows of as many tokens
  // are added that read the null block and keep nothing; to a mixed step rows without tokens, and one
  // with those that are missing. One graph's arrays always have the same addresses. Valid until the
  // next call.
  const StepInputs& build(const BatchPlan& plan, const GraphShape& graph, StreamRef stream);

  // What the last build() has made, for follow() of other ranks' batches of the same limits and
  // groups. They know no draws: no row's token may be pending.
  StepShape shape() const;
  std::span<const std::byte> packed() const { return pack_.added(); }
  std::size_t max_packed_bytes() const { return pack_bytes(); }
  // Instead of build(), whose arrays these are. Throws Failure where they cannot be.
  const StepInputs& follow(const StepShape& shape, std::span<const std::byte> packed,
                           StreamRef stream);

  // Queues what the device makes of the upload: ids, gathered tables, slots.
  void expand(StreamRef stream);

  // May a row of the latest plan stand further back than the plan says, and for a plan row, may it?
  // lost(), i32 [plan rows], has by how many tokens.
  bool lags() const { return !lags_.empty(); }
  bool lags(int row) const { return std::ranges::binary_search(lags_, row, {}, &Lag::row); }
  TensorView lost() const;

  // So many of a row's drafts held: a state continues from the one after the last of them.
  void settle(int slot, int num_held) { held_drafts_[slot] = num_held; }

  // Where the step's draw goes, i32 [S]: of each row that samples, after its last token and before
  // that after each of its drafts. The next step's pending tokens are read from there.
  TensorView sampled_tokens(int num_samples) const {
    return pack_.whole<std::int32_t>(num_samples);
  }

  // The latest step's token ids, i32 [T]: drafts too, and padding.
  TensorView ids(int num_tokens) const { return TensorView(ids_.data(), DType::i32, {num_tokens}); }

  // Where a draft model's go, i32 [max_drafts, max_num_seqs]: the next step's unknown drafts of a
  // slot are read from the column that it was given last.
  TensorView drafts() const;
  void give_column(int slot, int column) { draft_columns_[slot] = column; }
  int draft_column(int slot) const { return draft_columns_[slot]; }

  // For a further pass over the step's slots, with other tokens: block tables and slots by group;
  // expand()'s are void then. `rows` are on the device, its counts as num_kernel_blocks() has them.
  // Valid until the next call.
  std::span<const GroupInputs> map_rows(const TableRows& rows, int num_rows, int num_tokens,
                                        StreamRef stream);
  int num_tables() const { return tables_.num_groups(); }
  int num_kernel_blocks(int table, int slot) const {
    return tables_.num_kernel_blocks(table, slot);
  }

  int num_groups() const { return static_cast<int>(groups_.size()); }
  int max_blocks(int group) const { return groups_[group].max_blocks; }  // of one request

 private:
  using Ints = StagedPack::Array<std::int32_t>;
  // Of one KV cache group: a table on the device, or states.
  struct Group {
    int max_blocks = 0;
    int block_size = 0;
    int table = -1;                // in tables_; −1: states
    bool one_state = false;        // one block for the whole request
    bool shares_prefixes = false;  // its attention reads them once
    int num_drafts = 0;            // blocks behind the running state's, for states after drafts
    std::optional<StateTable> states;
    std::vector<std::int32_t> running;  // by slot: where its latest step had the running state
  };
  // A row of which the plan takes drafts to have held.
  struct Lag {
    int row = 0, first_token = 0, num_tokens = 0;
    std::int32_t num_drafts = 0, first_draft = 0, first_draw = 0;  // of the step before
  };
  // SharedPrefixes' arrays.
  struct SharedArrays {
    Ints starts, members, places, lengths;
  };
  // Of one step, in the order they lie.
  struct Arrays {
    Ints query_start, seq_lens, slots, counts, sample_rows, ids, id_index, positions;
  };

  static std::vector<TableGeometry> add_groups(const std::vector<KvGroup>& kv_groups,
                                               const BatchLimits& limits, bool reads_prefixes_once,
                                               std::vector<Group>& groups);
  std::size_t pack_bytes() const;
  void update_tables(const BatchPlan& plan);
  void add_arrays(int num_rows, int num_tokens, int num_drafts);
  void fill_rows(const BatchPlan& plan);
  void fill_row_tokens(const BatchRow& row, std::span<const TokenId> drafts, int first);
  std::int32_t index_of_draft(int slot, int draft) const;
  bool shares_prefixes() const { return std::ranges::any_of(groups_, &Group::shares_prefixes); }
  void add_shared(int num_rows, int num_tokens);
  void fill_shared(const BatchPlan& plan, const GraphShape& graph);
  void set_longest_shared(int num_tokens);
  static int padded_tokens(const BatchPlan& plan, const GraphShape& graph);
  int padded_drafts(const BatchPlan& plan, const GraphShape& graph) const;
  void fill_padding(const GraphShape& graph, int first_row, int first_token);
  void add_padding_row(int row, int first, int length);
  void catch_up(StreamRef stream);
  void add_lags(int num_rows);
  static int running_state(const Group& group, const BatchRow& row);
  int state_to_read(const Group& group, const BatchRow& row) const;
  // Of a group: where states are read and written, and with drafts those of each token.
  struct StateArrays {
    Ints read, write, of_tokens;
  };
  StateArrays add_states(int num_rows, bool has_drafts, GroupInputs& inputs);
  void fill_states(Group& group, const BatchPlan& plan, const StateArrays& arrays);
  void fill_token_states(const Group& group, const BatchPlan& plan, const StateArrays& arrays);

  Ops& ops_;
  const BatchLimits limits_;
  std::vector<Group> groups_;
  BlockTables tables_;
  std::vector<std::int32_t> last_sample_of_;  // by slot: row of sampled_tokens(), −1: none
  std::vector<std::int32_t> held_drafts_;     // by slot: of its latest step
  std::vector<std::int32_t> last_drafts_of_;  // by slot: of its latest step, to verify
  std::vector<std::int32_t> first_draft_of_;  // by slot: of them, among ids_
  std::vector<std::int32_t> draft_columns_;   // by slot

  // Begins with what the step before has drawn, [max_samples], and drafts(); then what the host
  // sends: one buffer, so that one gather can read all of it.
  StagedPack pack_;
  Buffer ids_;  // i32 [max_num_batched_tokens]: gathered
  Buffer lost_;            // i32 [max_num_seqs]
  std::vector<Lag> lags_;  // of the latest plan
  struct LagArrays {
    Ints num_drafts, first_draft, first_draw, at, line;
  };
  LagArrays lag_arrays_;
  Arrays arrays_;
  SharedArrays shared_;
  std::vector<GroupInputs> group_inputs_, other_inputs_;
  TableRows table_rows_;
  StepInputs inputs_;
  GraphShape graph_;    // of inputs_
  int num_rows_ = 0;    // the same
  int num_drafts_ = 0;  // the same
  int longest_shared_ = 0;
};

}  // namespace quire
