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

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/config.h"
#include "engine/config.h"
#include "engine/request/request.h"
#include "engine/scheduler/batch_plan.h"

namespace quire {

class Connector;
class KvCacheManager;

struct SchedulerOptions {
  int max_num_seqs = 256;             // rows of a step
  int max_num_batched_tokens = 2048;  // tokens of a step
  int max_model_len = 0;              // tokens
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  bool chunked_prefill = true;
  int long_prefill_threshold = 0;       // most tokens of one request in one step; 0: no limit
  bool reserve_full_prompt = true;      // admit only when the whole prompt fits the free blocks
  int num_speculative_tokens = 0;       // drafts per request and step
  int num_lookahead_tokens = 0;         // slots the drafter writes beyond the scheduled tokens
  bool async = false;                   // plan step n + 1 while n computes
  int pipeline_depth = 1;               // plans in flight
  bool recompute_failed_loads = false;  // else the request fails
  std::size_t max_waiting_requests = 16384;
  std::size_t max_waiting_tokens = 64u << 20;
};

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

// Now, and totals since start.
struct SchedulerStats {
  int num_running = 0;
  int num_waiting = 0;           // for capacity
  int num_waiting_deferred = 0;  // for a grammar or a transfer
  std::int64_t waiting_tokens = 0;
  int num_blocks = 0;  // usable: without the null block
  int num_free_blocks = 0;
  double kv_usage = 0;                // 0 … 1
  std::int64_t prefix_queries = 0;    // tokens
  std::int64_t prefix_hits = 0;       // tokens
  std::int64_t external_queries = 0;  // tokens asked of the connector
  std::int64_t external_hits = 0;
  std::int64_t prompt_tokens = 0;  // of requests whose prompt is done
  std::int64_t generated_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t steps = 0;
  std::int64_t draft_tokens = 0;
  std::int64_t accepted_tokens = 0;  // drafts that held
};

class Scheduler {
 public:
  // The manager and the connector (may be null) outlive the scheduler.
  Scheduler(const SchedulerOptions& options, KvCacheManager& kv, Connector* connector = nullptr);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // invalid_argument: can never run here, and why. overloaded: the waiting queue is full.
  Result<void> add(RequestInit init);

  // The request ends now, in whatever state; false if it is not there. Its end is not reported.
  bool abort(RequestId id);

  // A grammar was compiled, or could not be (the request ends with that error).
  void grammar_ready(RequestId id);
  void grammar_failed(RequestId id, std::string error);

  // The next step; may be empty (everyone waits for something else). Valid until its commit.
  const BatchPlan& schedule();

  // Appends what was sampled, ends what is done, frees blocks. Valid until the next commit.
  const StepResult& commit(const BatchPlan& plan, const StepTokens& tokens,
                           const TransferNews& transfers = {});

  bool has_work() const;      // a request that is not finished, or a plan not committed
  bool can_schedule() const;  // fewer than pipeline_depth plans are in flight
  const Request* find(RequestId id) const;
  SchedulerStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
