#pragma once
// Decides what each step runs: one token budget, spent on running requests first and then on
// waiting ones; who cannot get blocks is preempted and recomputed. Owns all requests. Engine thread
// only.
//
//   while (scheduler.has_work()) {
//     const BatchPlan& plan = scheduler.schedule();
//     StepTokens tokens = runner.run(plan);
//     const StepResult& result = scheduler.commit(plan, tokens);
//   }
//
// With SchedulerOptions::pipeline_depth 2, schedule() may be called again before the commit; plans
// are committed in the order they were made.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/config.h"
#include "engine/kv_cache/kv_cache_manager.h"
#include "engine/kv_transfer/connector.h"
#include "engine/request/decision.h"
#include "engine/request/engine_stats.h"
#include "engine/request/request.h"
#include "engine/scheduler/batch_plan.h"
#include "engine/scheduler/chunk_pacer.h"
#include "engine/scheduler/prefix_finder.h"
#include "engine/scheduler/request_queue.h"
#include "engine/scheduler/state_steps.h"
#include "engine/structured/mask_queue.h"

namespace quire {

struct SchedulerOptions {
  int max_num_seqs = 256;             // rows of a step
  int max_num_batched_tokens = 2048;  // tokens of a step
  int max_model_len = 0;              // tokens
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  bool chunked_prefill = true;
  int long_prefill_threshold = 0;         // most tokens of one request in one step; 0: no limit
  bool reserve_full_prompt = true;        // admit only when the whole prompt fits the free blocks
  int num_speculative_tokens = 0;         // drafts per request and step
  int num_lookahead_tokens = 0;           // slots the drafter writes beyond the scheduled tokens
  bool async = false;                     // plan step n + 1 while n computes
  int pipeline_depth = 1;                 // plans in flight
  bool drafts_ahead = false;              // with async: set_drafts() may come before the commit
  bool recompute_failed_loads = false;    // else the request fails
  bool pooling = false;                   // a request ends with its prompt: nothing is drawn
  // Rows of at most so many tokens share prefixes, for attention that reads them once; 0: none do.
  int most_sharing_tokens = 0;
  double target_step_seconds = 0;         // where somebody decodes; 0: no bound
  int least_chunk = 16;                   // tokens of prompts in a step, whatever that bound
  std::int64_t max_waiting_requests = 0;  // 0: no limit
  std::int64_t max_waiting_tokens = 0;    // prompts; 0: no limit
};

SchedulerOptions scheduler_options(const SchedulerConfig& config, int max_model_len);

// One request's news of a step: tokens, an end, or both.
struct RequestProgress {
  const Request* request = nullptr;  // until the next call of schedule()
  std::int32_t row = -1;             // of the committed plan; −1: ended outside of a step
  std::int32_t first_token = 0;      // in StepResult::tokens
  std::int32_t num_tokens = 0;
  std::optional<FinishReason> finish_reason;
  std::optional<TokenId> stop_token;  // the last token, where it ended the request
};

struct StepResult {
  std::vector<RequestProgress> requests;
  std::vector<TokenId> tokens;
  std::span<const TokenId> tokens_of(const RequestProgress& progress) const {
    return std::span(tokens).subspan(progress.first_token, progress.num_tokens);
  }
};

class Scheduler {
 public:
  // The manager and the connector (may be null) outlive the scheduler. Throws Failure where the
  // options cannot work together.
  Scheduler(const SchedulerOptions& options, KvCacheManager& kv, Connector* connector = nullptr);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // invalid_argument: can never run here, and why. overloaded: the waiting queue is full.
  Result<void> add(RequestInit init);

  // The request ends now, in whatever state; false if it is not there. Its end is not reported.
  bool abort(RequestId id);

  // What a request with SamplingParams::constraint waits for; null where somebody else masks.
  void grammar_ready(RequestId id, std::unique_ptr<ConstraintMasks> constraint);
  // The request ends with this error, in whatever state; the next commit reports it.
  void fail(RequestId id, Error error);

  // The next step; may be empty (everyone waits for something else) and is committed anyway.
  // Valid until its commit.
  const BatchPlan& schedule();

  // Appends what was sampled, ends what is done, frees blocks. Valid until the next commit.
  const StepResult& commit(const BatchPlan& plan, const StepTokens& tokens,
                           const TransferNews& transfers = {});

  // What to verify with the request's next step, made on the host between a commit and the next
  // schedule(); cut to what the request may still become. kUnknownDraft: the next step's plan has
  // it, or nobody. With SchedulerOptions::async only if drafts_ahead, and then before that commit,
  // too: the plan that follows takes all drafts of the step under way to hold, and its rows are
  // corrected by the commit.
  void set_drafts(const Request& request, std::span<const TokenId> drafts);
  // How many it takes of them.
  int most_drafts(const Request& request) const;

  // A plan took so long, from the end of the one before; before its commit.
  void settle_time(const BatchPlan& plan, double seconds) { pacer_.settle(plan, seconds); }
  // A prompt of so many tokens took so long, before anybody came.
  void learn_time(int num_tokens, double seconds) { pacer_.learn(num_tokens, seconds); }

  // What the newest step draws for this request does not count, as its mask was not there in time:
  // its last token is computed once more when it is. Only where plans overlap.
  void drop_sample(RequestId id);

  // Somebody is not finished or not reported yet, or blocks are still being sent. Where a step runs
  // nothing anyway, everyone waits for something outside: a grammar, a transfer.
  bool has_work() const {
    return !requests_.empty() || num_rows_in_flight_ > 0 || !failed_.empty();
  }
  bool can_schedule() const { return num_in_flight_ < options_.pipeline_depth; }
  const Request* find(RequestId id) const;
  // Appends what was decided since the last call, oldest first.
  void take_decisions(std::vector<Decision>& out);
  EngineStats stats() const;  // what it knows of them

  // In scheduling order.
  std::span<Request* const> running() const { return running_; }
  const RequestQueue& waiting() const { return waiting_; }
  const RequestQueue& deferred() const { return deferred_; }

 private:
  enum class Verdict : std::uint8_t { scheduled, deferred, stop };

  Result<void> admit(const RequestInit& init) const;

  // schedule()
  BatchPlan& next_plan();
  void schedule_running(BatchPlan& plan);
  void take_prompt(const Request& request, int num_tokens);
  void lacks_budget(const Request& request);
  bool may_starve() const {
    return !prompts_go_on_ && !starved_ && least_step(states_) > 1;
  }
  int count_decoding() const;
  int tokens_wanted(const Request& request);
  int allocate_or_preempt(BatchPlan& plan, Request& request, int num_tokens);
  Request& pick_victim() const;
  void preempt(BatchPlan& plan, Request& victim);
  void requeue(Request& victim);
  void remove_row(BatchPlan& plan, Request& request);
  void schedule_waiting(BatchPlan& plan);
  Request* next_waiting() const;
  Verdict schedule_one(BatchPlan& plan, Request& request);
  std::optional<ExternalMatch> match_external(const Request& request, int num_hit);
  int tokens_to_start(const Request& request, int num_computed);
  void count_lookup(Request& request, int num_hit, const ExternalMatch& external);
  bool promote(Request& request);
  void take_loaded(Request& request);
  bool allocate_waiting(Request& request, const SlotDemand& demand);
  bool reclaim_parked(const Request& head);
  void start_running(BatchPlan& plan, Request& request, int num_tokens);
  int within_threshold(int num_tokens) const {
    const int most = options_.long_prefill_threshold;
    return most > 0 ? std::min(num_tokens, most) : num_tokens;
  }
  void add_row(BatchPlan& plan, Request& request, int num_tokens, bool is_new);
  void add_block_updates(BatchPlan& plan, const Request& request, bool is_new);
  void finish_plan(BatchPlan& plan);
  void forget_drafts();

  // commit()
  void commit_row(const BatchPlan& plan, int index, const StepTokens& tokens);
  void settle_drafts(Request& request, const BatchPlan& plan, const BatchRow& row, int num_sampled);
  void correct_next_plan(const BatchPlan& plan, const Request& request, int num_rejected);
  void append_tokens(Request& request, RequestProgress& progress, std::span<const TokenId> sampled);
  void take_drafts(Request& request, int index, const StepTokens& tokens);
  void handle_invalid_blocks(const BatchPlan& plan, std::span<const BlockId> invalid);
  void rewind(Request& request, int num_valid);
  void handle_transfers(const TransferNews& transfers);

  // Of what is not taken, the first ones stay.
  void decide(const Request& request, DecisionKind kind, std::int64_t first = 0,
              std::int64_t second = 0, std::int64_t third = 0);
  // The same, once while it stays so.
  void tell_wait(const Request& request, DecisionKind why, std::int64_t first = 0,
                 std::int64_t second = 0);
  void tell_why_head_waits();

  void finish_pooled(Request& request, const BatchRow& row, int index);
  void leave(Request& request);
  void finish(Request& request, FinishReason reason);
  void fail(Request& request, Error error);
  void report_end(Request& request);
  void release(Request& request);
  void drop_finished();
  std::vector<std::span<const BlockId>> tables_of(const Request& request) const;

  SchedulerOptions options_;
  KvCacheManager& kv_;
  Connector* connector_;
  const StateSteps states_;
  PrefixFinder prefixes_;
  ChunkPacer pacer_;

  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<Request*> running_;
  RequestQueue waiting_;
  RequestQueue deferred_;              // passed over for a transfer, or now ready; served first
  RequestQueue compiling_;             // for a grammar; not looked at until it is there
  std::vector<Request*> passed_over_;  // in this step
  std::vector<std::unique_ptr<Request>> finished_;  // until no plan refers to them
  std::vector<RequestId> finished_ids_;             // since the last plan
  std::vector<Request*> failed_;                    // ended outside of a step, to be reported
  std::vector<std::int32_t> free_slots_;

  std::vector<BatchPlan> plans_;  // a ring
  std::uint64_t step_ = 0;
  int num_in_flight_ = 0;       // plans
  int num_rows_in_flight_ = 0;  // of those
  int budget_ = 0;              // tokens left in this step
  bool prompts_go_on_ = false;  // in this step
  std::optional<RequestId> starved_;  // whom the next step keeps room for
  StepResult result_;
  RequestId told_wait_;  // who was told last why it waits
  DecisionKind told_why_ = DecisionKind::queued;
  std::vector<Decision> decisions_;  // to be taken
  EngineStats totals_;  // only the counters
};

}  // namespace quire
