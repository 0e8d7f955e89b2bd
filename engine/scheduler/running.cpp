// Scheduler::schedule: what those who run do in the next step. Who joins them: waiting.cpp.

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/scheduler/scheduler.h"

namespace quire {
namespace {

// Requests lie anywhere in memory: fetch them this many visits ahead.
constexpr std::size_t kAhead = 6;

// All but its last token has keys and values, or will have by the steps under way.
bool decodes(const Request& request) { return request.num_tokens() - request.num_computed <= 1; }

}  // namespace

const BatchPlan& Scheduler::schedule() {
  assert(can_schedule());
  drop_finished();
  BatchPlan& plan = next_plan();
  kv_.start_step();
  budget_ = options_.max_num_batched_tokens;
  prompts_go_on_ = false;
  pacer_.begin(count_decoding());
  schedule_running(plan);
  if (plan.preempted.empty()) schedule_waiting(plan);
  finish_plan(plan);
  ++num_in_flight_;
  num_rows_in_flight_ += static_cast<int>(plan.rows.size());
  return plan;
}

BatchPlan& Scheduler::next_plan() {
  BatchPlan& plan = plans_[step_ % plans_.size()];
  plan.step = step_++;
  plan.num_tokens = 0;
  plan.rows.clear();
  plan.block_updates.clear();
  plan.block_ids.clear();
  plan.drafts.clear();
  plan.preempted.clear();
  plan.zero_blocks.clear();
  plan.shared_prefixes.clear();
  plan.shared_rows.clear();
  plan.finished.clear();
  std::swap(plan.finished, finished_ids_);
  return plan;
}

// Tokens of requests that wait for this step's; 0 where nobody asks.
int Scheduler::count_decoding() const {
  if (options_.target_step_seconds <= 0) return 0;
  int count = 0;
  for (const Request* request : running_)
    if (decodes(*request)) count += 1 + static_cast<int>(request->drafts.size());
  return count;
}

// Brings a running request up to everything it knows: prompt, output, drafts, samples on their way.
int Scheduler::tokens_wanted(const Request& request) {
  if (request.lacks_mask()) return 0;
  const int num_pending = request.num_placeholders;
  // Its mask may not be there in time, and a state cannot be computed once more.
  if (num_pending > 0 && request.is_constrained && kv_.has_state_groups()) return 0;
  // Its last token is on the way, even if all drafts are rejected.
  if (num_pending > 0 && request.num_computed + 2 - num_pending >= request.max_total_tokens()) {
    return 0;
  }
  // Nor is a slot taken that admission did not count, should all of them hold.
  if (options_.drafts_ahead && num_pending > 0 &&
      request.num_computed + 1 >= request.max_total_tokens())
    return 0;
  const int missing = request.num_tokens() + static_cast<int>(request.drafts.size()) + num_pending -
                      request.num_computed;
  int wanted = std::min(
      {within_threshold(missing), budget_,
       // A vector needs all of a prompt; what is drawn last is never stored.
       options_.max_model_len - (options_.pooling ? 0 : 1) - request.num_computed});
  if (!decodes(request)) wanted = pacer_.within(request.num_computed, wanted);
  return tokens_in_step(states_, request, request.num_computed, wanted);
}

void Scheduler::schedule_running(BatchPlan& plan) {
  const std::optional<RequestId> favoured = std::exchange(starved_, std::nullopt);
  int kept = favoured ? std::min(least_step(states_), budget_) : 0;
  budget_ -= kept;
  std::size_t i = 0;
  while (i < running_.size() && budget_ + kept > 0) {
    if (i + kAhead < running_.size()) running_[i + kAhead]->prefetch();
    Request& request = *running_[i];
    if (request.id() == favoured) budget_ += std::exchange(kept, 0);
    int num_tokens = tokens_wanted(request);
    if (num_tokens > 0) {
      const std::size_t num_rows = plan.rows.size();
      num_tokens = allocate_or_preempt(plan, request, num_tokens);
      if (num_tokens == 0) return;
      if (!decodes(request)) take_prompt(request, num_tokens);
      i -= num_rows - plan.rows.size();  // victims that had been scheduled stood before it
      add_row(plan, request, num_tokens, false);
    } else if (!decodes(request)) {
      lacks_budget(request);
    }
    ++i;
  }
  budget_ += kept;
  for (; i < running_.size() && may_starve(); ++i)
    if (!decodes(*running_[i])) lacks_budget(*running_[i]);
}

void Scheduler::take_prompt(const Request& request, int num_tokens) {
  prompts_go_on_ = true;
  pacer_.take(request.num_computed, num_tokens);
}

// A prompt whose steps cannot be as short as what those who decode leave: the next step keeps room
// for it, and the one after that does not.
void Scheduler::lacks_budget(const Request& request) {
  if (may_starve() && budget_ < least_step(states_)) starved_ = request.id();
}

// How many of the tokens there is room for. 0: the request had to go itself.
int Scheduler::allocate_or_preempt(BatchPlan& plan, Request& request, int num_tokens) {
  SlotDemand demand;
  demand.num_new = num_tokens;
  demand.num_lookahead = options_.num_lookahead_tokens;
  demand.num_unsettled = std::max(request.num_placeholders - 1, 0);
  demand.delay_caching = request.loads_in_step;
  while (!kv_.allocate(request, demand)) {
    // Alone in a small cache it goes on with fewer tokens: nobody would give it more room.
    const bool may_shrink = running_.size() == 1 && options_.chunked_prefill;
    demand.num_new = may_shrink ? fewer_tokens_in_step(states_, request, request.num_computed,
                                                       demand.num_new)
                                : 0;
    if (demand.num_new > 0) continue;
    Request& victim = pick_victim();
    preempt(plan, victim);
    if (&victim == &request) return 0;
    demand.num_new = num_tokens;
  }
  return demand.num_new;
}

// FCFS: the youngest. Priority: the least important, the youngest of them.
Request& Scheduler::pick_victim() const {
  if (options_.policy == SchedulingPolicy::fcfs) return *running_.back();
  const auto key = [](const Request* r) { return std::pair(r->priority(), r->arrival()); };
  return **std::max_element(running_.begin(), running_.end(),
                            [&](Request* a, Request* b) { return key(a) < key(b); });
}

void Scheduler::preempt(BatchPlan& plan, Request& victim) {
  remove_row(plan, victim);
  requeue(victim);
  plan.preempted.push_back(victim.id());
}

// Recompute later: its blocks are free, though what they hold may still be hit when it comes back.
void Scheduler::requeue(Request& victim) {
  running_.erase(std::find(running_.rbegin(), running_.rend(), &victim).base() - 1);
  kv_.free(victim);
  decide(victim, DecisionKind::preempted, kv_.pool().num_free(), victim.num_computed,
         static_cast<std::int64_t>(running_.size()));
  victim.state = RequestState::preempted;
  victim.num_computed = 0;
  victim.drafts.clear();
  ++victim.num_preemptions;
  ++totals_.preemptions;
  free_slots_.push_back(std::exchange(victim.slot, -1));
  waiting_.push_front(victim);
}

// It had been given its turn in this very step: what the step would have computed must not be hit.
void Scheduler::remove_row(BatchPlan& plan, Request& request) {
  const auto at = std::find_if(plan.rows.begin(), plan.rows.end(),
                               [&](const BatchRow& row) { return row.request == &request; });
  if (at == plan.rows.end()) return;
  kv_.rewind(request, at->num_computed);
  budget_ += at->num_tokens;
  plan.num_tokens -= at->num_tokens;
  const auto index = static_cast<std::int32_t>(at - plan.rows.begin());
  plan.rows.erase(at);
  std::erase_if(plan.block_updates, [&](const BlockUpdate& u) { return u.row == index; });
  for (BlockUpdate& update : plan.block_updates) update.row -= update.row > index;
}

void Scheduler::add_row(BatchPlan& plan, Request& request, int num_tokens, bool is_new) {
  BatchRow& row = plan.rows.emplace_back();
  row.request = &request;
  row.slot = request.slot;
  row.num_computed = request.num_computed;
  row.num_tokens = num_tokens;
  row.is_new = is_new;
  if (!request.drafts.empty()) {
    const int known = request.num_tokens() + request.num_placeholders;
    row.num_drafts = std::clamp(request.num_computed + num_tokens - known, 0,
                                static_cast<int>(request.drafts.size()));
    row.first_draft = static_cast<std::int32_t>(plan.drafts.size());
    plan.drafts.insert(plan.drafts.end(), request.drafts.begin(),
                       request.drafts.begin() + row.num_drafts);
    request.drafts.clear();
  }
  const int num_known = std::max(request.num_tokens() - request.num_computed, 0);
  row.num_pending = std::max(num_tokens - row.num_drafts - num_known, 0);
  if (is_new || kv_.any_new_blocks()) add_block_updates(plan, request, is_new);
  budget_ -= num_tokens;
  plan.num_tokens += num_tokens;
}

void Scheduler::add_block_updates(BatchPlan& plan, const Request& request, bool is_new) {
  const auto row = static_cast<std::int32_t>(plan.rows.size()) - 1;
  for (int group = 0; group < kv_.num_groups(); ++group) {
    const auto ids = is_new ? kv_.table(request, group) : kv_.new_blocks(request, group);
    if (ids.empty()) continue;
    plan.block_updates.push_back({row, group, static_cast<std::int32_t>(plan.block_ids.size()),
                                  static_cast<std::int32_t>(ids.size())});
    plan.block_ids.insert(plan.block_ids.end(), ids.begin(), ids.end());
  }
}

// From here on the step counts as computed.
void Scheduler::finish_plan(BatchPlan& plan) {
  plan.chunk = pacer_.choice();
  for (BatchRow& row : plan.rows) {
    Request& request = const_cast<Request&>(*row.request);  // all requests are ours
    request.num_computed += row.num_tokens;
    ++request.num_in_flight;
    row.samples = request.num_computed >= request.num_tokens() + request.num_placeholders;
    request.in_prefill = !row.samples;
    if (!options_.async || request.in_prefill) continue;
    request.num_placeholders += 1 + row.num_drafts;
    request.drafts.assign(options_.num_speculative_tokens, -1);
  }
  if (options_.num_lookahead_tokens > 0) forget_drafts();
  if (kv_.config().record_fresh_blocks) kv_.take_fresh_blocks(plan.zero_blocks);
  if (options_.most_sharing_tokens == 0) return;
  prefixes_.find(kv_, options_.most_sharing_tokens, plan);
  for (const SharedPrefix& prefix : plan.shared_prefixes)
    totals_.shared_prefix_tokens += std::int64_t{prefix.num_rows - 1} * prefix.num_tokens;
}

// Of who was left out: the drafts after this step take the place of what the device alone has.
void Scheduler::forget_drafts() {
  for (Request* request : running_)
    if ((!options_.async || options_.drafts_ahead) && !request->drafts.empty() &&
        request->drafts.front() == kUnknownDraft)
      request->drafts.clear();
}

}  // namespace quire
