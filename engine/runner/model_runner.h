#pragma once
// Executes plans: arrays → forward → logits → tokens. forward() and sample() queue a step,
// collect() waits for the oldest one; up to two may be under way, so that a step is planned while
// another computes. Between forward() and sample() the step before may be collected, where what
// this one may draw depends on its tokens; not where its plan takes drafts of the step before to
// have held. Where there are graphs, steps in which every row has one token, or that and as many
// drafts as there can be, and draws behind each are replayed from one of them, and others of few
// tokens to their hidden states. Engine thread only.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/workspace.h"
#include "engine/runner/draft_runner.h"
#include "engine/runner/graph_cache.h"
#include "engine/runner/input_batch.h"
#include "engine/runner/kv_memory.h"
#include "engine/runner/prompt_logprobs.h"
#include "engine/runner/rank_line.h"
#include "engine/sampling/sampler.h"
#include "engine/scheduler/batch_plan.h"
#include "model/pooling.h"
#include "model/model.h"

namespace quire {

struct RunnerOptions {
  BatchLimits limits;
  std::uint64_t seed = 0;
  std::vector<int> graph_sizes = {};  // rows, ascending; empty: no graphs
  std::vector<int> draft_graph_sizes = {};  // of rows with limits.max_drafts drafts each
  std::vector<int> mixed_graph_sizes = {};  // tokens, of steps whose rows have any number
  bool keeps_faster_mixed = false;  // of these those alone that are faster than what they replace
  bool captures_drafting = false;  // for graph_sizes, a draft model's passes behind its first, too
  bool captures_all_drafting = false;       // for draft_graph_sizes, all of its passes
  std::optional<PoolingType> pooling = {};  // steps end with vectors: nothing is drawn
  bool same_bits = false;     // of a token, however many are computed with it
  bool draws_drafts = false;  // a draft model's tokens, and verifies them by rejection sampling
  Collectives* collectives = nullptr;       // of a divided model
  RankLine* line = nullptr;                 // to the ranks that have its other parts
};

// Sees the logits of every token of every step, before edits; slows everything down.
using LogitsObserver =
    std::function<void(RequestId request, int position, std::span<const float> logits)>;

class ModelRunner {
 public:
  static constexpr int kMaxInFlight = 2;

  ModelRunner(Device& device, Ops& ops, Model& model, KvMemory& memory, const KvPlan& plan,
              const RunnerOptions& options, DraftModel* draft = nullptr);

  // Runs a prompt and a decode step in the null block, so that the first request finds everything
  // touched and a workspace that is too small shows at start-up; then captures the graphs.
  void warm_up();

  struct PromptTime {
    int num_tokens = 0;
    double seconds = 0;
    // What a draft model takes behind it, and behind one token: its passes over them, and as many
    // drafts as there can be.
    double drafting = 0, drafting_one = 0;
  };
  // Measures prompts of `least` tokens and twice as many each time, after warm_up(). Ends when one
  // takes more than `most_seconds`, has `most` tokens or as many as fit into a step, or when the
  // next might make it two seconds together.
  std::vector<PromptTime> time_prompts(int least, int most, double most_seconds);

  void observe_logits(LogitsObserver observer) { observer_ = std::move(observer); }
  void observe_drafts(DraftObserver observer) { drafts_->observe(std::move(observer)); }

  // Queues a step up to its logits. The plan stays as it is until sample(). may_propose: drafts may
  // be made of what it computes; else propose() must want none.
  void forward(const BatchPlan& plan, bool may_propose = true);
  // Zeroes new blocks of a plan without rows, before they are filled from elsewhere.
  void zero(std::span<const BlockId> blocks);
  // Must the requests of the step before have its tokens before sample()? Not where it is enough
  // that the device has them.
  bool needs_latest_tokens() const { return sampler_.needs_latest_tokens(); }
  void sample();
  // Requests that must end, of the latest sample().
  std::span<const RowFailure> failures() const { return sampler_.failures(); }
  // Requests whose draw in it must not be taken.
  std::span<const TokenMasks::LateRow> late() const { return sampler_.late(); }
  void launch(const BatchPlan& plan) {
    forward(plan);
    sample();
  }
  // Waits for the oldest step that was launched; its tokens are valid until the next collect().
  StepTokens collect();
  // Queues the draft model's passes behind what was collected last, and gives how many drafts each
  // plan row will have: see DraftRunner::run. Before the plan is committed; valid until the next
  // call.
  std::span<const int> propose(std::span<const int> wanted);
  // Does the same for the step that was sampled last, before it is collected: the device knows what
  // it drew. Only where can_propose_ahead().
  std::span<const int> propose_ahead(std::span<const int> wanted);
  bool can_propose_ahead() const {
    return drafts_ && options_.line == nullptr && drafts_->can_run_ahead();
  }
  // May a step follow in which all drafts of the one under way are taken to hold?
  bool can_follow_drafts() const { return can_propose_ahead() && !observer_; }
  // Waits for drafts that the host needs already.
  void wait_for_drafts() { drafts_->wait(); }
  // Waits for the drafts of a slot, and reads as many as could be drawn.
  void read_drafts(int slot, int count, std::vector<TokenId>& out) const;
  bool computes_on_host() const { return device_.is_host_memory(); }
  int most_drafts(const Request& request, int num_known, int num_open = 0) const {
    return drafts_->most_drafts(request, num_known, num_open);
  }
  // Requests of the collected step whose logits are no numbers. They must end.
  std::span<const RequestId> undrawn() const { return undrawn_; }
  // Log-probabilities of the collected step, by plan row; k is 0 when nobody asked.
  const LogprobRows& logprobs() const { return sampler_.logprobs(collected_->sampler_turn); }
  // The vector of a row of the collected step that reached its prompt's end, f32 [hidden]; only
  // with RunnerOptions::pooling.
  std::span<const float> pooled(int row) const;
  // Index of the row's first sample in the collected step; those of its drafts follow.
  int sample_of_row(int row) const { return collected_->rows[row].sample; }

  // Log-probabilities of prompt tokens 1, 2, … once the first token is collected; empty: not asked.
  std::vector<PromptPosition> take_prompt_logprobs(RequestId id) {
    return prompt_logprobs_.take(id);
  }

  int num_in_flight() const { return num_in_flight_; }
  const GraphCache& graphs() const { return graphs_; }
  const GraphCache& drafting_graphs() const { return drafts_->graphs(); }
  const GraphCache& whole_drafting_graphs() const { return drafts_->whole_graphs(); }

 private:
  struct SampledRow {
    std::int32_t sample = -1;  // −1: does not sample
    std::int32_t slot = 0;
    std::int32_t first_draft = 0, num_drafts = 0;  // in InFlight::drafts
  };
  // Where a draft model put the drafts of a step.
  struct DraftPlaces {
    int turn = 0;
    std::vector<std::int32_t> columns;  // by plan row
  };
  struct InFlight {
    std::unique_ptr<Event> done;
    const BatchPlan* plan = nullptr;
    Buffer tokens;                 // host, i32 [S]
    Buffer pooled;                 // host: hidden states to pool
    std::vector<SampledRow> rows;  // as in the plan
    std::vector<TokenId> drafts;  // the plan's; unknown ones until take_drafts()
    DraftPlaces draft_places;     // of the unknown ones
    int width = 1;  // 1 + most drafts of a row
    int sampler_turn = 0;
    int num_samples = 0;
  };

  GraphShape graph_shape(const BatchPlan& plan) const;
  std::size_t workspace_bytes() const;
  ForwardContext context(const StepInputs& inputs, int max_seq_len);
  TensorView hidden(std::int64_t rows) const;  // [rows, hidden_size]
  TensorView logits(std::int64_t rows) const;  // f32 [rows, V]
  void compute(const BatchPlan& plan, const StepInputs& inputs, const GraphShape& graph);
  int num_pooled_rows() const;
  void take_hidden(const BatchPlan& plan, InFlight& step, const StepInputs& inputs);
  void pool(const InFlight& step);
  void compute_hidden(const StepInputs& inputs, const ForwardContext& context);
  void compute_graph(const StepInputs& inputs, const GraphShape& graph);
  void capture_graphs();
  bool capture(const GraphShape& shape);
  int longest_warm_up() const;
  PromptTime warm_up_eager(const std::vector<BlockId>& blocks, int num_prompt);
  void zero_warmed(const std::vector<BlockId>& blocks, int num_tokens);
  void add_sampled_rows(const BatchPlan& plan, InFlight& step);
  // Once its tokens are on the host.
  const DraftRunner& drafted() const;
  bool reads_drafts(const BatchPlan& plan) const;
  void find_drafts(InFlight& step) const;
  void take_drafts(InFlight& step) const;
  static int num_held(const SampledRow& row, std::span<const TokenId> drafts,
                      const std::int32_t* drawn);
  void share_draws(TensorView tokens);
  void read_all_logits(const BatchPlan& plan, const ForwardContext& context);
  void show_logits(const BatchRow& row, int position, TensorView logits, StreamRef stream);

  Device& device_;
  Ops& ops_;
  Model& model_;
  KvMemory& memory_;
  const KvPlan& plan_;
  const RunnerOptions options_;
  InputBatch batch_;
  Sampler sampler_;
  std::optional<DraftRunner> drafts_;  // with a draft model
  Workspace workspace_;
  Buffer hidden_;          // [max_num_batched_tokens, hidden_size]
  Buffer sampled_hidden_;  // [max_samples, hidden_size]
  Buffer logits_;          // f32 [max_samples, V]
  LogitsObserver observer_;
  PromptLogprobs prompt_logprobs_;
  GraphCache graphs_;

  std::array<InFlight, kMaxInFlight> steps_;
  int next_ = 0;  // of steps_, to launch
  int num_in_flight_ = 0;
  bool is_sampled_ = true;  // the step queued last
  bool may_propose_ = true;
  const InFlight* collected_ = nullptr;
  std::vector<TokenId> collected_tokens_;  // [plan rows, width]
  std::vector<float> collected_pooled_;    // [samples, hidden]
  std::vector<RequestId> undrawn_;
};

}  // namespace quire
