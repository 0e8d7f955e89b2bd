// Scheduler::schedule: who runs in the next step.

#include <algorithm>
#include <cassert>

#include "engine/kv_transfer/connector.h"
#include "engine/scheduler/scheduler.h"

namespace quire {
namespace {

// Requests lie anywhere in memory: fetch them this many visits ahead.
constexpr std::size_t kAhead = 6;

// Output for which a running request has room from the start, so that decoding allocates nothing.
constexpr std::int64_t kReservedOutput = 8192;

}  // namespace

const BatchPlan& Scheduler::schedule() {
  assert(can_schedule());
  drop_finished();
  BatchPlan& plan = next_plan();
  kv_.start_step();
  budget_ = options_.max_num_batched_tokens;
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
  plan.block_copies.clear();
  plan.preempted.clear();
  plan.zero_blocks.clear();
  plan.common_prefix_blocks.clear();
  plan.finished.clear();
  std::swap(plan.finished, finished_ids_);
  return plan;
}

// Brings a running request up to everything it knows: prompt, output, drafts, samples on their way.
int Scheduler::tokens_wanted(const Request& request) const {
  const int num_pending = request.num_placeholders;
  // Its last token is on the way, even if all drafts are rejected.
  if (num_pending > 0 && request.num_computed + 2 - num_pending >= request.max_total_tokens()) {
    return 0;
  }
  int wanted = request.num_tokens() + static_cast<int>(request.drafts.size()) + num_pending -
               request.num_computed;
  if (options_.long_prefill_threshold > 0) {
    wanted = std::min(wanted, options_.long_prefill_threshold);
  }
  wanted = std::min({wanted, budget_, options_.max_model_len - 1 - request.num_computed});
  return split_at_state_boundary(request, request.num_computed, wanted);
}

// A state is kept only where a step ends, so prefill steps end at block boundaries, and one of them
// at the last boundary that a later request can hit.
int Scheduler::split_at_state_boundary(const Request& request, int num_computed,
                                       int num_tokens) const {
  if (state_block_size_ == 0) return num_tokens;
  if (num_computed >= std::max(request.num_prompt(), request.num_tokens() - 1)) return num_tokens;
  const int block_size = state_block_size_;
  int last = request.num_tokens() / block_size * block_size;
  if (kv_.config().use_eagle) last = std::max(last - block_size, 0);
  const int end = num_computed + num_tokens;
  if (end < last) return num_tokens / block_size * block_size;
  return num_computed < last && last < end ? last - num_computed : num_tokens;
}

void Scheduler::schedule_running(BatchPlan& plan) {
  for (std::size_t i = 0; i < running_.size() && budget_ > 0;) {
    if (i + kAhead < running_.size()) running_[i + kAhead]->prefetch();
    Request& request = *running_[i];
    const int num_tokens = tokens_wanted(request);
    if (num_tokens > 0) {
      const std::size_t num_rows = plan.rows.size();
      if (!allocate_or_preempt(plan, request, num_tokens)) return;
      i -= num_rows - plan.rows.size();  // victims that had been scheduled stood before it
      add_row(plan, request, num_tokens, false);
    }
    ++i;
  }
}

// False: the request had to go itself.
bool Scheduler::allocate_or_preempt(BatchPlan& plan, Request& request, int num_tokens) {
  SlotDemand demand;
  demand.num_new = num_tokens;
  demand.num_lookahead = options_.num_lookahead_tokens;
  demand.num_unsettled = std::max(request.num_placeholders - 1, 0);
  while (!kv_.allocate(request, demand)) {
    Request& victim = pick_victim();
    preempt(plan, victim);
    if (&victim == &request) return false;
  }
  return true;
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

Request* Scheduler::next_waiting() const {
  if (deferred_.empty()) return waiting_.front();
  if (waiting_.empty() || options_.policy == SchedulingPolicy::fcfs) return deferred_.front();
  Request* deferred = deferred_.front();
  Request* waiting = waiting_.front();
  return RequestQueue::before(*deferred, *waiting) ? deferred : waiting;
}

void Scheduler::schedule_waiting(BatchPlan& plan) {
  while (budget_ > 0 && static_cast<int>(running_.size()) < options_.max_num_seqs) {
    Request* request = next_waiting();
    if (request == nullptr) break;
    const Verdict verdict = schedule_one(plan, *request);
    if (verdict == Verdict::stop) break;
    if (verdict == Verdict::deferred) {
      leave(*request);
      passed_over_.push_back(request);
    }
  }
  for (auto request = passed_over_.rbegin(); request != passed_over_.rend(); ++request) {
    deferred_.push_front(**request);
  }
  passed_over_.clear();
}

Scheduler::Verdict Scheduler::schedule_one(BatchPlan& plan, Request& request) {
  if (!promote(request)) return Verdict::deferred;
  SlotDemand demand;
  ExternalMatch external;
  if (request.num_computed == 0) {
    demand.hit = &kv_.find_prefix(request);
    if (connector_ != nullptr) {
      const auto match = connector_->match(request, demand.hit->num_tokens);
      if (!match) return Verdict::deferred;
      external = *match;
      // Loaded within the step, at least one token is left to sample from.
      const int missing = request.num_tokens() - demand.hit->num_tokens;
      external.num_tokens =
          std::clamp(external.num_tokens, 0, external.async ? missing : missing - 1);
    }
  }
  const int hit_tokens = demand.hit == nullptr ? 0 : demand.hit->num_tokens;
  const int num_computed = request.num_computed + hit_tokens + external.num_tokens;
  if (!external.async) {
    int wanted = request.num_tokens() - num_computed;
    if (options_.long_prefill_threshold > 0) {
      wanted = std::min(wanted, options_.long_prefill_threshold);
    }
    // After a preemption its output counts too: then there is no way but in chunks.
    const bool whole = !options_.chunked_prefill && wanted <= options_.max_num_batched_tokens;
    if (whole && wanted > budget_) return Verdict::stop;
    demand.num_new = split_at_state_boundary(request, num_computed, std::min(wanted, budget_));
    if (demand.num_new == 0) return Verdict::stop;
  }
  demand.num_external = external.num_tokens;
  demand.num_lookahead = external.async ? 0 : options_.num_lookahead_tokens;
  demand.delay_caching = external.async;
  demand.whole_prompt_must_fit = options_.reserve_full_prompt;
  if (!allocate_waiting(request, demand)) return Verdict::stop;
  if (connector_ != nullptr) {
    connector_->allocated(request, tables_of(request), external.num_tokens);
  }
  if (demand.hit != nullptr) {
    totals_.prefix_queries += request.num_tokens();
    totals_.prefix_hits += hit_tokens;
    totals_.external_queries += connector_ == nullptr ? 0 : request.num_tokens() - hit_tokens;
    totals_.external_hits += external.num_tokens;
    request.num_external = external.num_tokens;
  }
  request.num_computed = num_computed;
  if (external.async) {
    request.state = RequestState::waiting_for_remote_kv;
    request.load_done = false;
    return Verdict::deferred;
  }
  start_running(plan, request, demand.num_new);
  return Verdict::scheduled;
}

// False: it still waits for something other than its turn.
bool Scheduler::promote(Request& request) {
  if (request.state == RequestState::waiting_for_grammar) return false;
  if (request.state != RequestState::waiting_for_remote_kv) return true;
  if (!request.load_done) return false;
  take_loaded(request);
  request.state = request.num_preemptions > 0 ? RequestState::preempted : RequestState::waiting;
  return true;
}

// Its load has ended: what came can be shared from now on.
void Scheduler::take_loaded(Request& request) {
  request.load_done = false;
  if (std::exchange(request.load_failed, false)) {
    if (request.num_computed == 0) return kv_.free(request);
    return kv_.cache(request, request.num_computed);
  }
  kv_.cache(request, request.num_computed);
  // Something must be computed to sample from.
  request.num_computed = std::min(request.num_computed, request.num_tokens() - 1);
  if (!std::exchange(request.was_scheduled, true)) request.num_cached = request.num_computed;
}

bool Scheduler::allocate_waiting(Request& request, const SlotDemand& demand) {
  while (!kv_.allocate(request, demand)) {
    if (!running_.empty() || !reclaim_parked(request)) return false;
  }
  return true;
}

// Nobody runs, so nobody will give blocks back: take them from a request that waits with its loaded
// prefix. Without this, several of those could hold all blocks between them and none go on.
bool Scheduler::reclaim_parked(const Request& head) {
  Request* victim = nullptr;
  const auto consider = [&](Request& request) {
    const bool loading = request.state == RequestState::waiting_for_remote_kv && !request.load_done;
    if (&request != &head && request.kv_sequence >= 0 && !loading) victim = &request;
  };
  deferred_.for_each(consider);
  waiting_.for_each(consider);
  if (victim == nullptr) return false;
  kv_.free(*victim);
  victim->num_computed = 0;
  victim->load_done = victim->load_failed = false;
  victim->state = RequestState::preempted;
  ++victim->num_preemptions;
  ++totals_.preemptions;
  return true;
}

void Scheduler::start_running(BatchPlan& plan, Request& request, int num_tokens) {
  leave(request);
  running_.push_back(&request);
  request.state = RequestState::running;
  request.reserve(static_cast<std::size_t>(
      std::min({request.max_total_tokens(), request.num_tokens() + kReservedOutput,
                std::int64_t{options_.max_model_len}})));
  request.slot = free_slots_.back();
  free_slots_.pop_back();
  if (!std::exchange(request.was_scheduled, true)) request.num_cached = request.num_computed;
  add_row(plan, request, num_tokens, true);
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
  if (kv_.config().record_fresh_blocks) kv_.take_fresh_blocks(plan.zero_blocks);
  if (!options_.common_prefix || running_.empty()) return;
  for (int group = 0; group < kv_.num_groups(); ++group) {
    plan.common_prefix_blocks.push_back(kv_.num_common_prefix_blocks(*running_.front(), group));
  }
}

}  // namespace quire
