#include "engine/core/engine_core.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"

#include "engine/core/block_report.h"

namespace quire {

void EngineCore::add(AddRequest request) {
  const RequestId id = request.id;
  const bool keeps_apart = Drafting::keeps_apart(request.sampling);
  Result<void> admitted = Error{};
  try {
    admitted = admit(request);
  } catch (const std::exception& e) {
    admitted =
        Error{ErrorCode::internal, std::string("the request was not taken: ") + e.what(), {}};
  }
  if (admitted) {
    Tracking& tracked = tracking_[id];
    tracked.times.queued = Clock::now();
    tracked.keeps_apart = keeps_apart;
    num_apart_ += keeps_apart;
    return;
  }
  take_notice(FetchRefused{request.transfer_params, request.transfer_name});
  RequestOutput& output = refused_.emplace_back();
  output.id = id;
  output.finish_reason = FinishReason::error;
  output.error = admitted.error();
}

Result<void> EngineCore::admit(AddRequest& request) {
  if (auto checked = validate(request.sampling, model_->vocab_size()); !checked) return checked;
  // What is not text is easily mistaken for something else, by us or by who reads KV events.
  if (std::ranges::any_of(request.cache_salt,
                          [](unsigned char c) { return c < ' ' || c == 127; })) {
    return Error{ErrorCode::invalid_argument, "cache_salt must not hold control characters",
                 "/cache_salt"};
  }
  if ((pooler_ != nullptr) != request.pooling.has_value()) {
    return Error{ErrorCode::invalid_argument,
                 pooler_ ? "this is a pooling model: it generates nothing"
                         : "this model generates: it has no vectors to give",
                 {}};
  }
  int second_text = 0;
  if (request.pooling) {
    request.sampling.max_tokens = 1;  // which never comes
    second_text = request.pooling->second_segment;
    if (second_text < 0 || std::cmp_greater(second_text, request.prompt.size()))
      return Error{ErrorCode::invalid_argument, "second_segment must lie in the prompt", {}};
  }
  const std::optional<ConstraintSpec> constraint = request.sampling.constraint;
  if (constraint && constraints_ == nullptr) {
    return Error{ErrorCode::unsupported, "this engine has no structured output", {}};
  }
  RequestInit init;
  init.id = request.id;
  init.sampling = std::move(request.sampling);
  init.eos_token_ids = std::move(request.eos_token_ids);
  init.priority = request.priority;
  init.client = request.client;
  init.arrival = request.arrival;
  init.cache_salt = std::move(request.cache_salt);
  init.position_offset = model_->position_offset(static_cast<int>(request.prompt.size()));
  if (auto taken = admit_transfer(request, init.sampling); !taken) return taken;
  init.transfer_params = std::move(request.transfer_params);
  init.prompt = std::move(request.prompt);
  if (auto added = scheduler_->add(std::move(init)); !added) {
    if (transfer_ != nullptr)
      transfer_->forget(request.id, added.error().code == ErrorCode::overloaded);
    return added;
  }
  if (second_text > 0 && encoder_ != nullptr) second_texts_[request.id] = second_text;
  if (constraint) constraints_->add(request.id, request.client, *constraint);
  return {};
}

Result<void> EngineCore::admit_transfer(AddRequest& request, const SamplingParams& sampling) {
  if (request.transfer_params.empty()) return {};
  if (transfer_ != nullptr)
    return transfer_->admit(request.id, {request.transfer_params, request.transfer_name}, sampling,
                            request.prompt);
  return refuse_transfer(request.transfer_params);
}

void EngineCore::abort(RequestId id) {
  scheduler_->abort(id);
  runner_->take_prompt_logprobs(id);
  second_texts_.erase(id);
  if (constraints_ != nullptr) constraints_->cancel(id);
  forget(id);
}

void EngineCore::forget(RequestId id) {
  const auto tracked = tracking_.find(id);
  if (tracked == tracking_.end()) return;
  num_apart_ -= tracked->second.keeps_apart;
  tracking_.erase(tracked);
}

// May the next step be planned before the one under way is collected?
bool EngineCore::may_overlap() const {
  if (!drafting_.is_on()) return true;
  return is_followed_ && (!is_open_ || num_apart_ == 0);
}

PrefixCacheReset EngineCore::reset_prefix_cache(std::uint64_t call) {
  const BlockPool& pool = kv_->pool();
  const int in_use = pool.num_usable() - pool.num_free();
  return {.call = call, .done = kv_->reset_prefix_cache(), .blocks_in_use = in_use};
}

void EngineCore::take_notice(const PushNotice& notice) {
  if (transfer_ != nullptr) transfer_->not_here(notice.name, notice.elsewhere);
}

void EngineCore::take_notice(const FetchRefused& refused) {
  if (transfer_ != nullptr && !refused.params.empty())
    transfer_->refused({refused.params, refused.name});
}

BlockReport EngineCore::report_blocks(std::uint64_t call) const {
  BlockReport report = block_report(*kv_, *scheduler_);
  report.call = call;
  report.engine = ready_.engine;
  return report;
}

void EngineCore::take_compiled() {
  if (constraints_ == nullptr) return;
  for (ConstraintQueue::Done& done : constraints_->take()) {
    const Request* request = scheduler_->find(done.request);
    if (request == nullptr) continue;
    if (done.constraint == nullptr) {
      scheduler_->fail(done.request, std::move(done.error));
      continue;
    }
    try {
      auto constraint = done.constraint->start(request->eos_token_ids());
      scheduler_->grammar_ready(done.request, masks_->add(done.request, std::move(constraint)));
    } catch (const std::exception& e) {
      scheduler_->fail(done.request, {ErrorCode::internal, e.what(), {}});
    }
  }
}

// Where others run, this thread has a tenth of a step's time for masks, so that nobody notices;
// what is not made in it is made beside the steps.
void EngineCore::make_masks() {
  if (masks_ == nullptr || masks_->num_open() == 0) return;
  constexpr std::chrono::nanoseconds kLeast = std::chrono::microseconds(50),
                                     kMost = std::chrono::milliseconds(2);
  const bool others_run = masks_->num_open() < scheduler_->running().size();
  masks_->work(others_run ? std::clamp(launch_time_ / 10, kLeast, kMost) : kMost);
  take_masks();
}

void EngineCore::take_masks() {
  for (MaskQueue::Done& done : masks_->take()) {
    if (done.has_failed) {
      scheduler_->fail(done.request, std::move(done.error));
      continue;
    }
    const Request* request = scheduler_->find(done.request);
    if (drafting_.is_on() && request != nullptr && request->constraint != nullptr)
      scheduler_->set_drafts(*request, request->constraint->next().drafts);
  }
}

StepOutput EngineCore::step() {
  if (backend_.ranks != nullptr) backend_.ranks->line().fate().check();
  StepOutput output;
  output.requests = std::exchange(refused_, {});
  step_tokens_ = step_requests_ = 0;
  has_arrivals_ = has_preempted_ = false;
  take_compiled();
  make_masks();
  const bool collects = !in_flight_.empty();
  while (!in_flight_.empty() && !may_overlap()) collect(output);
  if (scheduler_->can_schedule() && scheduler_->has_work()) launch(output);
  const bool nothing_new = step_requests_ == 0;
  // All of them where nothing is to be run: an empty plan is under way, too.
  while (!in_flight_.empty() && (nothing_new || !scheduler_->can_schedule() || !may_overlap()))
    collect(output);
  if (events_ != nullptr) events_->publish(kv_->take_events());
  is_idle_ = nothing_new && !collects && !has_arrivals_ && !has_preempted_ &&
             output.tokens.empty() && output.requests.empty();
  scheduler_->take_decisions(output.decisions);
  output.stats = stats();
  return output;
}

// The step before is waited for here only where a mask depends on what it draws; the forward pass
// runs meanwhile.
void EngineCore::launch(StepOutput& output) {
  const BatchPlan& plan = scheduler_->schedule();
  is_followed_ = false;
  const bool was_open = std::exchange(is_open_, false);
  [[maybe_unused]] const bool is_behind_open = was_open && !in_flight_.empty();
  in_flight_.push_back(&plan);
  has_preempted_ = !plan.preempted.empty();  // what it gave back lets others run in the next step
  if (plan.empty()) return runner_->zero(plan.zero_blocks);
  const auto now = Clock::now();
  for (const BatchRow& row : plan.rows) {
    if (!row.is_new) continue;
    const auto tracked = tracking_.find(row.request->id());
    if (tracked == tracking_.end()) continue;
    RequestTimes& times = tracked->second.times;
    if (times.scheduled == Clock::time_point()) times.scheduled = now;
  }
  step_tokens_ = plan.num_tokens;
  step_requests_ = static_cast<int>(plan.rows.size());
  const auto goes_on = [](const BatchRow& row) { return !row.is_new; };
  if (in_flight_.size() == 1 && std::ranges::none_of(plan.rows, goes_on)) step_begun_ = now;
  drafting_.begin(plan);
  if (encoder_ != nullptr) tell_texts_apart(plan);
  runner_->forward(plan, drafting_.may_propose());
  if (in_flight_.size() > 1 && runner_->needs_latest_tokens()) {
    assert(!is_behind_open);  // who needs them keeps steps apart
    collect(output);
    make_masks();
  }
  runner_->sample();
  for (const auto& row : runner_->late()) scheduler_->drop_sample(row.request);
  for (const RowFailure& failure : runner_->failures())
    scheduler_->fail(failure.request, failure.error);
  if (drafting_.is_on()) {
    drafting_.propose_ahead(plan, *runner_);
    is_open_ = drafting_.leaves_open(plan);
    is_followed_ = overlaps_ && drafting_.give_ahead(plan, *scheduler_,
                                                     can_leave_open_ && num_apart_ == 0 &&
                                                         runner_->can_follow_drafts());
  }
  launch_time_ = Clock::now() - now;
}

// An encoder's prompt is one step.
void EngineCore::tell_texts_apart(const BatchPlan& plan) {
  token_types_.clear();
  for (const BatchRow& row : plan.rows) {
    const auto found = second_texts_.find(row.request->id());
    const int first = found == second_texts_.end() ? row.num_tokens : found->second;
    token_types_.insert(token_types_.end(), static_cast<std::size_t>(first), 0);
    token_types_.insert(token_types_.end(), static_cast<std::size_t>(row.num_tokens - first), 1);
    if (found != second_texts_.end()) second_texts_.erase(found);
  }
  encoder_->set_token_types(token_types_);
}

// A request is in one of an output's lists, in order: a second step's news are merged.
void EngineCore::collect(StepOutput& output) {
  if (output.tokens.empty() && output.requests.empty()) return collect_step(output);
  StepOutput next;
  collect_step(next);
  merge(output, std::move(next));
}

void EngineCore::collect_step(StepOutput& output) {
  const BatchPlan& plan = *in_flight_.front();
  in_flight_.erase(in_flight_.begin());
  const StepTokens tokens = plan.empty() ? StepTokens() : runner_->collect();
  if (!plan.empty()) fail_undrawn();
  drafting_.settle(plan, tokens);
  drafting_.propose(plan, tokens, *runner_);
  TransferNews news;
  if (transfer_ != nullptr) news = take_arrivals(!plan.empty());
  const auto ended = Clock::now();
  if (!plan.empty())
    scheduler_->settle_time(plan, std::chrono::duration<double>(ended - step_begun_).count());
  step_begun_ = ended;
  const StepResult& result = scheduler_->commit(plan, tokens, news);
  output.time = Clock::now();
  for (const RequestProgress& progress : result.requests) report(progress, result, output);
  drafting_.give(result, *scheduler_, *runner_);
  if (masks_ != nullptr) advance_constraints(result);
}

// Where others run, their next token waits for none of it, or comes a fifth of a step later.
TransferNews EngineCore::take_arrivals(bool others_run) {
  constexpr int kShare = 5;
  auto patience = std::chrono::nanoseconds::max();
  if (others_run)
    patience = transfer_->fills_beside() ? std::chrono::nanoseconds(0)
                                         : (Clock::now() - step_begun_) / kShare;
  const TransferConnector::News& arrived = transfer_->take_news(patience);
  has_arrivals_ |= transfer_->is_copying() || !arrived.received.empty();
  return {.received = arrived.received, .invalid_blocks = arrived.invalid_blocks};
}

// Their next masks are asked for, behind their drafts too.
void EngineCore::advance_constraints(const StepResult& result) {
  for (const RequestProgress& progress : result.requests) {
    const Request& request = *progress.request;
    if (progress.finish_reason || request.constraint == nullptr) continue;
    request.constraint->advance(result.tokens_of(progress), request.drafts, drafting_.most());
  }
}

void EngineCore::fail_undrawn() {
  for (const RequestId id : runner_->undrawn())
    scheduler_->fail(id, {ErrorCode::internal,
                          "the model's output is not a number: its weights are damaged, or "
                          "overflow in their dtype",
                          {}});
}

EngineStats EngineCore::stats() const {
  EngineStats stats = scheduler_->stats();
  drafting_.report(stats);
  stats.late_allocations = backend_.device->ledger().num_late();
  if (transfer_ != nullptr) stats.kv_transfer = transfer_->stats();
  if (offload_ != nullptr) stats.kv_offload = offload_->stats();
  if (backend_.ranks != nullptr) {
    stats.ranks = backend_.ranks->stats();
    stats.ranks.front().memory_bytes =
        static_cast<std::int64_t>(backend_.device->ledger().uses().total().device);
  }
  stats.step_tokens = step_tokens_;
  stats.step_requests = step_requests_;
  return stats;
}

}  // namespace quire
