#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

namespace quire {
namespace {

Error refusal(const std::string& detail) { return {ErrorCode::invalid_argument, detail, {}}; }

int longest_step(const SchedulerOptions& options) {
  const int threshold = options.long_prefill_threshold;
  return threshold > 0 ? std::min(threshold, options.max_num_batched_tokens)
                       : options.max_num_batched_tokens;
}

// What would leave every request waiting forever.
void check(const SchedulerOptions& options, const StateSteps& states) {
  const int state_block_size = states.mode == StateCacheMode::align ? states.block_size : 0;
  const auto demand = [](bool holds, const std::string& what) {
    if (!holds) throw Failure(ErrorCode::invalid_argument, "scheduler: " + what);
  };
  demand(options.max_num_seqs > 0, "max_num_seqs must be positive");
  demand(options.max_num_batched_tokens > 0, "max_num_batched_tokens must be positive");
  demand(options.max_model_len > 0, "max_model_len must be positive");
  demand(options.pipeline_depth == 1 || options.pipeline_depth == 2,
         "pipeline_depth must be 1 or 2");
  demand(options.max_num_batched_tokens >= state_block_size,
         "max_num_batched_tokens must be at least the state block size, " +
             std::to_string(state_block_size));
  demand(options.least_chunk > 0, "least_chunk must be positive");
  demand(options.target_step_seconds == 0 || options.chunked_prefill,
         "target_step_seconds needs chunked_prefill");
  demand(options.long_prefill_threshold == 0 || options.long_prefill_threshold >= state_block_size,
         "long_prefill_token_threshold must be at least the state block size, " +
             std::to_string(state_block_size));
}

}  // namespace

SchedulerOptions scheduler_options(const SchedulerConfig& config, int max_model_len) {
  SchedulerOptions options;
  options.max_num_seqs = config.max_num_seqs;
  options.max_num_batched_tokens = config.max_num_batched_tokens;
  options.max_model_len = max_model_len;
  options.policy = config.policy;
  options.chunked_prefill = config.enable_chunked_prefill;
  options.long_prefill_threshold = config.long_prefill_token_threshold;
  options.reserve_full_prompt = config.scheduler_reserve_full_isl;
  options.target_step_seconds = config.target_itl_ms / 1000.0;
  options.async = config.async_scheduling.value_or(true);
  options.pipeline_depth = options.async ? 2 : 1;
  options.max_waiting_requests = config.max_num_queued_reqs;
  options.max_waiting_tokens = config.max_num_queued_tokens;
  return options;
}

Scheduler::Scheduler(const SchedulerOptions& options, KvCacheManager& kv, Connector* connector)
    : options_(options),
      kv_(kv),
      connector_(connector),
      states_(state_steps(kv.config(), longest_step(options))),
      pacer_({.target = options.target_step_seconds,
              .most = options.max_num_batched_tokens,
              .least = std::max(options.least_chunk, quire::least_step(states_))}),
      waiting_(options.policy),
      deferred_(options.policy),
      compiling_(options.policy),
      plans_(options.pipeline_depth) {
  check(options, states_);
  for (int slot = options.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  running_.reserve(options.max_num_seqs);
}

Scheduler::~Scheduler() = default;

// A request that passes can run alone in the pool to its end, so the queue's head always gets its
// turn.
Result<void> Scheduler::admit(const RequestInit& init) const {
  const auto num_prompt = static_cast<std::int64_t>(init.prompt.size());
  const auto count = [](std::int64_t n) { return std::to_string(n); };
  if (num_prompt == 0) return refusal("the prompt is empty");
  if (requests_.contains(init.id)) return refusal("a request with this id is running");
  if (options_.pooling && num_prompt > options_.max_model_len) {
    return refusal("the prompt has " + count(num_prompt) + " tokens; the context holds " +
                   count(options_.max_model_len));
  }
  if (!options_.pooling && num_prompt >= options_.max_model_len) {
    return refusal("the prompt has " + count(num_prompt) + " tokens; the context holds " +
                   count(options_.max_model_len) + ", of which at least one is for the answer");
  }
  if (!options_.chunked_prefill && num_prompt > options_.max_num_batched_tokens) {
    return refusal("the prompt has " + count(num_prompt) + " tokens; without chunked prefill " +
                   count(options_.max_num_batched_tokens) + " is the most");
  }
  const std::int64_t num_output = std::max(init.sampling.max_tokens, init.sampling.min_tokens);
  const std::int64_t most_tokens =
      std::min<std::int64_t>(num_prompt + num_output, options_.max_model_len);
  // Its last token is never stored; proposals to verify are, even beyond it.
  const std::int64_t num_stored =
      options_.pooling ? num_prompt
                   : std::min<std::int64_t>(most_tokens - 1 + options_.num_speculative_tokens,
                                            options_.max_model_len - 1);
  const std::int64_t num_slots =
      std::min<std::int64_t>(num_stored + options_.num_lookahead_tokens, options_.max_model_len);
  const std::int64_t needed = kv_.max_blocks(static_cast<int>(num_slots));
  if (needed > kv_.pool().num_usable()) {
    return refusal("a request of " + count(most_tokens) + " tokens needs " + count(needed) +
                   " KV cache blocks; there are " + count(kv_.pool().num_usable()));
  }
  const auto overloaded = [](const std::string& what) {
    return Error{ErrorCode::overloaded, "the waiting queue is full: " + what, {}};
  };
  const std::int64_t num_waiting = waiting_.size() + deferred_.size() + compiling_.size();
  if (options_.max_waiting_requests > 0 && num_waiting >= options_.max_waiting_requests) {
    return overloaded(count(num_waiting) + " requests");
  }
  const std::int64_t tokens =
      waiting_.num_tokens() + deferred_.num_tokens() + compiling_.num_tokens();
  if (options_.max_waiting_tokens > 0 && num_waiting > 0 &&
      tokens + num_prompt > options_.max_waiting_tokens) {
    return overloaded(count(tokens) + " prompt tokens");
  }
  return {};
}

Result<void> Scheduler::add(RequestInit init) {
  if (Result<void> admitted = admit(init); !admitted) return admitted;
  auto request = std::make_unique<Request>(std::move(init));
  const bool compiles = request->state == RequestState::waiting_for_grammar;
  decide(*request, DecisionKind::queued, waiting_.size() + deferred_.size() + compiling_.size(),
         request->num_prompt());
  if (compiles) tell_wait(*request, DecisionKind::waits_for_grammar);
  (compiles ? compiling_ : waiting_).push_back(*request);
  const RequestId id = request->id();
  requests_.emplace(id, std::move(request));
  return {};
}

const Request* Scheduler::find(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

bool Scheduler::abort(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second->state == RequestState::finished) return false;
  Request& request = *found->second;
  leave(request);
  finish(request, FinishReason::abort);
  return true;
}

// The request goes before those that came while its grammar was compiled, or by its priority.
void Scheduler::grammar_ready(RequestId id, std::unique_ptr<ConstraintMasks> constraint) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  if (found->second->state != RequestState::waiting_for_grammar) return;
  Request& request = *found->second;
  request.state = RequestState::waiting;
  request.constraint = std::move(constraint);
  compiling_.remove(request);
  deferred_.push_back(request);
}

void Scheduler::fail(RequestId id, Error error) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second->state == RequestState::finished) return;
  fail(*found->second, std::move(error));
}

// Ends outside of a step; the next commit reports it, and holds it until then.
void Scheduler::fail(Request& request, Error error) {
  request.error = std::move(error);
  leave(request);
  finish(request, FinishReason::error);
  ++request.num_in_flight;
  failed_.push_back(&request);
}

// Out of the running list or the queue that it stands in.
void Scheduler::leave(Request& request) {
  if (request.state == RequestState::running) {
    running_.erase(std::find(running_.begin(), running_.end(), &request));
  } else if (waiting_.holds(request)) {
    waiting_.remove(request);
  } else if (deferred_.holds(request)) {
    deferred_.remove(request);
  } else if (compiling_.holds(request)) {
    compiling_.remove(request);
  }
}

std::vector<std::span<const BlockId>> Scheduler::tables_of(const Request& request) const {
  std::vector<std::span<const BlockId>> tables;
  for (int group = 0; group < kv_.num_groups(); ++group) {
    tables.push_back(kv_.table(request, group));
  }
  return tables;
}

// The blocks stay while a load still writes into them, or a peer reads them.
void Scheduler::finish(Request& request, FinishReason reason) {
  const bool loading = request.state == RequestState::waiting_for_remote_kv && !request.load_done;
  request.state = RequestState::finished;
  request.finish_reason = reason;
  request.drafts.clear();
  request.constraint.reset();
  if (request.slot >= 0) free_slots_.push_back(std::exchange(request.slot, -1));
  finished_ids_.push_back(request.id());
  decide(request, DecisionKind::finished, request.num_output(), static_cast<std::int64_t>(reason));
  bool keep = loading;
  if (connector_ != nullptr) {
    ReleaseDecision decision = connector_->finished(request, tables_of(request));
    request.transfer_result = std::move(decision.result);
    keep |= decision.keep_blocks;
  }
  if (!keep) release(request);
}

// Frees the blocks of a finished request. The object stays until nobody can refer to it.
void Scheduler::release(Request& request) {
  kv_.free(request);
  const auto found = requests_.find(request.id());
  finished_.push_back(std::move(found->second));
  requests_.erase(found);
}

void Scheduler::drop_finished() {
  std::erase_if(finished_, [](const auto& request) { return request->num_in_flight == 0; });
}

EngineStats Scheduler::stats() const {
  EngineStats stats = totals_;
  stats.num_running = static_cast<int>(running_.size());
  stats.num_waiting = waiting_.size();
  stats.num_waiting_deferred = deferred_.size() + compiling_.size();
  stats.num_blocks = kv_.pool().num_usable();
  stats.num_free_blocks = kv_.pool().num_free();
  stats.kv_cache_usage = kv_.pool().usage();
  stats.pace = pacer_.stats();
  stats.steps = static_cast<std::int64_t>(step_);
  return stats;
}

}  // namespace quire
