#pragma once
// Drafting by a model, after a step was verified: one pass over what the step settled, so that the
// draft's keys and values are those of the target's hidden states, then one token per request for
// each further draft. What these further steps keep is overwritten by the next pass. On the step's
// stream, with the host's arrays of each pass sent ahead; the drafts stay on the device, where the
// next step finds them, so that the host plans and queues that step meanwhile. The passes may be
// queued before the host knows what the step drew, or the step before it: they are laid out as if
// all drafts had held, and a device corrects that by what did.
// Engine thread only. After construction nothing is allocated.

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/staged_pack.h"
#include "backend/workspace.h"
#include "engine/runner/graph_cache.h"
#include "engine/runner/input_batch.h"
#include "engine/sampling/sampler.h"
#include "engine/scheduler/batch_plan.h"
#include "model/draft_model.h"

namespace quire {

// One draft, for an observer; they come in order. Slows everything down.
struct ShownDraft {
  RequestId request;
  int context = 0;                // tokens known, the last of them just drawn
  TokenId draft = 0;              // the target's id
  std::span<const float> logits;  // over the draft's own vocabulary
};
using DraftObserver = std::function<void(const ShownDraft&)>;

class DraftRunner {
 public:
  // sampler: draws drafts as requests draw, for rejection sampling; null: takes the best ones.
  DraftRunner(Device& device, Ops& ops, DraftModel& model, InputBatch& batch,
              const BatchLimits& limits, const Sampler* sampler = nullptr);

  // Records the passes behind the first, for as many drafts as there can be of so many rows; false:
  // the device has no graphs. Rows ascend from call to call.
  bool capture(int num_rows, Workspace& workspace);
  // The same of all passes, behind a step whose rows verify as many drafts as there can be and left
  // `final_norm` of so many tokens.
  bool capture_all(int num_rows, TensorView final_norm, Workspace& workspace);
  const GraphCache& graphs() const { return graphs_; }
  const GraphCache& whole_graphs() const { return whole_graphs_; }
  // May run() come before the host knows what was drawn?
  bool can_run_ahead() const;
  // Scratch that run() takes.
  std::size_t workspace_bytes() const;
  // Where the target puts its streams, by layer; none where the draft reads its final norm.
  std::span<const StreamTap> taps(int num_tokens);

  // The plan's step drew `sampled`, [rows, width] as in StepTokens, and gave `final_norm` [T, …].
  // Width 0: only the device knows what it drew, in the batch. wanted [rows]: drafts, at most;
  // below 0 the row's tokens are not taken in either. Gives how many there will be, [rows]: in the
  // batch, as the slots' unknown drafts. Valid until the next call.
  std::span<const int> run(const BatchPlan& plan, std::span<const TokenId> sampled, int width,
                           std::span<const int> wanted, TensorView final_norm,
                           Workspace& workspace);
  // Waits for those of the latest run().
  void wait() const;
  // After wait(). kNoToken: its logits are no numbers.
  TokenId draft(int slot, int index) const {
    return draft_of(turn_, batch_.draft_column(slot), index);
  }
  // The same of a run before: what turn() was behind it, and draft_column() of the slot. It stays
  // while no more than two runs follow: those behind the steps under way.
  TokenId draft_of(int turn, int column, int index) const;
  int turn() const { return turn_; }
  // What can be drafted for a request of which this many tokens are known, or up to so many more:
  // there are slots for these, as far as contexts reach.
  int most_drafts(const Request& request, int num_known, int num_open = 0) const;
  // By what drafts were drawn, f32 [places, V]; with a sampler.
  TensorView shares() const;
  TensorView target_ids() const { return model_.target_ids(); }
  // Where the shares are by which the draft of this position was drawn; −1: it was not drawn, but
  // taken as the best or by others. After wait().
  int place_of(const BatchRow& row, int position, TokenId draft) const;
  void observe(DraftObserver observer) { observer_ = std::move(observer); }

 private:
  using Ints = StagedPack::Array<std::int32_t>;
  // What a row of the plan has settled: tokens [begin, begin + count), and the token after them.
  struct Line {
    const BatchRow* row = nullptr;
    std::span<const TokenId> drawn = {};
    int plan_row = 0;
    int begin = 0, count = 0;
    int first = 0, first_draw = -1;                    // of the step's tokens, and of what it drew
    int num_open = 0;                                  // drafts that may not have held
    int last = 0;                                      // of the pass's tokens
    int num_wanted = 0;                                // drafts
    int context() const { return begin + count + 1; }  // tokens known
    TokenId token_at(int position) const;
  };
  // One forward pass's arrays.
  struct Pass {
    Ints ids, positions, query_start, seq_lens, slots, counts;
    int num_rows = 0, num_tokens = 0, max_query_len = 0, max_seq_len = 0;
  };

  void read(const BatchPlan& plan, std::span<const TokenId> sampled, int width,
            std::span<const int> wanted);
  Pass add_pass(int num_rows, int num_tokens);
  void fill_row(Pass& pass, int row, int token, const Line& line, int begin, int count);
  void add_first_pass(const GraphShape& whole);
  void add_settling();
  void settle(int num_tokens);
  void add_lags();
  void catch_up();
  void compute_first(int num_tokens, TensorView final_norm, bool draws, Workspace& workspace);
  GraphShape graph_shape() const;
  GraphShape whole_shape(const BatchPlan& plan) const;
  void add_steps(const GraphShape& graph);
  void fill_padding(Pass& pass, int row, int num_tokens = 1);
  void compute_steps(Workspace& workspace);
  int num_wanting(int num_drafts) const;
  void compute(const Pass& pass, TensorView out, TensorView ids, TensorView states,
               std::span<const int> starts, const LastTokens& last, Workspace& workspace);
  void draw(int index, TensorView states, Workspace& workspace);
  void add_draws();
  void draw_by_shares(int index, TensorView logits, TensorView ids);
  template <class T>
  std::vector<T> on_host(TensorView values);
  void show(TensorView drafts, std::span<const float> logits);
  void count_drafts(const BatchPlan& plan);
  TensorView drafts_of(int index, std::int64_t rows) const;  // i32 [rows]
  std::span<const int> give();
  TensorView view(const Buffer& buffer, std::int64_t rows) const;  // [rows, hidden_size]
  ForwardContext context(Workspace& workspace) const;

  Device& device_;
  Ops& ops_;
  DraftModel& model_;
  InputBatch& batch_;
  const BatchLimits limits_;
  const std::int64_t width_;  // of the target's hidden states
  StagedPack pack_;
  Buffer streams_;                // [max_num_batched_tokens, streams · target's width]
  Buffer states_, other_states_;  // [max_num_batched_tokens, hidden]
  Buffer step_states_[2];         // [max_num_seqs, hidden]
  Buffer logits_;                 // f32 [max_num_seqs, V]
  Buffer own_ids_;                // i32 [max_num_seqs]: in the draft's vocabulary
  // By turns: i32 [max_drafts, max_num_seqs], a copy of the batch's, and when it is there.
  static constexpr int kTurns = 3;
  std::array<Buffer, kTurns> host_drafts_;
  std::array<std::unique_ptr<Event>, kTurns> drafted_;
  int turn_ = 0;
  Buffer zeros_;                  // what a greedy draw reads
  DraftObserver observer_;

  // A slot's drafts that were drawn, from this position on.
  struct Drawn {
    RequestId request = {};
    int first_position = 0, count = 0;
  };
  // In the order of order_; positions and places by draft.
  struct Draws {
    StagedPack::Array<float> temperature, top_p, min_p;
    Ints top_k;
    StagedPack::Array<std::uint64_t> seed;
    std::vector<StagedPack::Array<std::int64_t>> positions;
    std::vector<Ints> places;
  };
  const Sampler* const sampler_;
  DraftOps* const draft_ops_;  // with a sampler
  std::vector<Drawn> drawn_;   // by slot
  Buffer shares_;              // f32 [max_num_seqs · max_drafts, V]; with a sampler
  Draws draws_;

  std::vector<StreamTap> taps_;
  std::vector<Line> lines_;         // in the plan's order
  std::vector<const Line*> order_;  // those that want drafts, most first
  std::vector<int> starts_;
  Pass first_;
  Ints kept_rows_;                // of the step's tokens: those of the first pass
  Ints last_rows_, unit_starts_;  // each line's last token in the first pass; 0, 1, 2, …
  Ints last_lens_;                // tokens of each line up to that
  bool runs_ahead_ = false;       // of what the host knows
  // By line, and by number that what held decides: HeldArgs.
  struct Settling {
    Ints num_drafts, first_draft, first_draw, first_next, at, line;
  };
  Settling settling_;
  // Numbers of lines whose rows may stand further back than their plan says.
  struct Lags {
    Ints at, line;
  };
  Lags lags_;
  Ints wanting_;                  // in the order of order_: of the lines; a graph's rows: its first
  std::vector<Pass> steps_;       // for drafts 2, 3, …
  GraphCache graphs_;             // of these
  GraphCache whole_graphs_;       // of these and the first
  std::vector<int> num_drafts_;   // by plan row
};

}  // namespace quire
