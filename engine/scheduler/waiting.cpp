// Scheduler::schedule: which waiting requests join the next step.

#include <algorithm>
#include <utility>

#include "engine/scheduler/scheduler.h"

namespace quire {

Request* Scheduler::next_waiting() const {
  if (deferred_.empty()) return waiting_.front();
  if (waiting_.empty() || options_.policy == SchedulingPolicy::fcfs) return deferred_.front();
  Request* deferred = deferred_.front();
  Request* waiting = waiting_.front();
  return RequestQueue::before(*deferred, *waiting) ? deferred : waiting;
}

void Scheduler::schedule_waiting(BatchPlan& plan) {
  // A connector begins loads all the same.
  const auto has_room = [&] { return budget_ > 0 && (connector_ != nullptr || !pacer_.is_full()); };
  while (has_room() && static_cast<int>(running_.size()) < options_.max_num_seqs) {
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
  tell_why_head_waits();
}

Scheduler::Verdict Scheduler::schedule_one(BatchPlan& plan, Request& request) {
  if (!promote(request) || request.lacks_mask()) return Verdict::deferred;
  SlotDemand demand;
  ExternalMatch external;
  if (request.num_computed == 0) {
    demand.hit = &kv_.find_prefix(request);
    const auto match = match_external(request, demand.hit->num_tokens);
    if (!match) return Verdict::deferred;
    external = *match;
  }
  if (demand.hit != nullptr) request.shared_prefix = demand.hit->num_shared;
  const int hit_tokens = demand.hit == nullptr ? 0 : demand.hit->num_tokens;
  const int num_computed = request.num_computed + hit_tokens + external.num_tokens;
  if (!external.async) {
    demand.num_new = tokens_to_start(request, num_computed);
    if (demand.num_new == 0) {
      const int left = request.num_tokens() - num_computed;
      if (options_.chunked_prefill || left <= least_step(states_)) lacks_budget(request);
      tell_wait(request, DecisionKind::waits_for_tokens, request.num_tokens() - num_computed,
                budget_);
      return Verdict::stop;
    }
  }
  demand.num_external = external.num_tokens;
  demand.num_lookahead = external.async ? 0 : options_.num_lookahead_tokens;
  // Blocks that are still being loaded are not shared, nor is what is computed from them.
  request.loads_in_step = external.num_tokens > 0 && !external.async;
  demand.delay_caching = external.num_tokens > 0;
  demand.whole_prompt_must_fit = options_.reserve_full_prompt;
  while (!allocate_waiting(request, demand)) {
    // Alone in a small cache it goes on with fewer tokens: nobody would give it more room.
    if (running_.empty() && options_.chunked_prefill && !external.async)
      demand.num_new = fewer_tokens_in_step(states_, request, num_computed, demand.num_new);
    else
      demand.num_new = 0;
    if (demand.num_new > 0) continue;
    tell_wait(request, DecisionKind::waits_for_blocks, kv_.pool().num_free(),
              request.num_tokens() - num_computed);
    return Verdict::stop;
  }
  if (connector_ != nullptr) {
    connector_->allocated(request, tables_of(request), external.num_tokens);
  }
  if (demand.hit != nullptr) count_lookup(request, hit_tokens, external);
  request.num_computed = num_computed;
  if (external.async) {
    request.state = RequestState::waiting_for_remote_kv;
    request.load_done = false;
    tell_wait(request, DecisionKind::waits_for_cache);
    return Verdict::deferred;
  }
  start_running(plan, request, demand.num_new);
  return Verdict::scheduled;
}

// Empty: the connector does not know yet.
std::optional<ExternalMatch> Scheduler::match_external(const Request& request, int num_hit) {
  if (connector_ == nullptr) return ExternalMatch{};
  std::optional<ExternalMatch> match = connector_->match(request, num_hit);
  if (!match) return match;
  // Loaded within the step, at least one token is left to sample from.
  const int missing = request.num_tokens() - num_hit;
  match->num_tokens = std::clamp(match->num_tokens, 0, match->async ? missing : missing - 1);
  return match;
}

// 0: the step has no room for it.
int Scheduler::tokens_to_start(const Request& request, int num_computed) {
  const int wanted = within_threshold(request.num_tokens() - num_computed);
  // After a preemption its output counts too: then there is no way but in chunks.
  const bool whole = !options_.chunked_prefill && wanted <= options_.max_num_batched_tokens;
  if (whole && wanted > budget_) return 0;
  const int fitting = pacer_.within(num_computed, std::min(wanted, budget_));
  return tokens_in_step(states_, request, num_computed, fitting);
}

// What a connector brings is found when it has come: a load that fails is no hit.
void Scheduler::count_lookup(Request& request, int num_hit, const ExternalMatch& external) {
  request.num_external = external.num_tokens;
  if (request.num_preemptions > 0 || std::exchange(request.lookup_counted, true)) return;
  const int num_restored = std::min(request.num_restored, num_hit);
  const int num_here = num_hit - num_restored;
  if (request.sampling().reads_prefix_cache()) {
    totals_.prefix_cache_queries += request.num_tokens();
    totals_.prefix_cache_hits += num_here;
  }
  if (connector_ == nullptr && !kv_.has_tier()) return;
  totals_.external_cache_queries += request.num_tokens() - num_here;
  totals_.external_cache_hits += num_restored;
  if (external.async) {
    request.num_to_load = external.num_tokens;
  } else {
    totals_.external_cache_hits += external.num_tokens;
  }
}

// False: it still waits for something other than its turn.
bool Scheduler::promote(Request& request) {
  if (request.state != RequestState::waiting_for_remote_kv) return true;
  if (!request.load_done) return false;
  take_loaded(request);
  request.state = request.num_preemptions > 0 ? RequestState::preempted : RequestState::waiting;
  return true;
}

// Its load has ended: what came can be shared from now on.
void Scheduler::take_loaded(Request& request) {
  request.load_done = false;
  // Of a load that failed in part, what is good: see rewind().
  totals_.external_cache_hits +=
      std::min(std::exchange(request.num_to_load, 0), request.num_external);
  if (std::exchange(request.load_failed, false)) {
    if (request.num_computed == 0) return kv_.free(request);
    return kv_.cache(request, request.num_computed);
  }
  kv_.cache(request, request.num_computed);
  if (const auto partly = connector_->unshareable(request); !partly.empty()) kv_.evict(partly);
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
  decide(*victim, DecisionKind::preempted, kv_.pool().num_free());
  return true;
}

void Scheduler::start_running(BatchPlan& plan, Request& request, int num_tokens) {
  leave(request);
  running_.push_back(&request);
  request.state = RequestState::running;
  request.reserve(request.expected_tokens(options_.max_model_len));
  request.slot = free_slots_.back();
  free_slots_.pop_back();
  if (!std::exchange(request.was_scheduled, true)) request.num_cached = request.num_computed;
  decide(request,
         request.num_preemptions > 0 ? DecisionKind::resumed : DecisionKind::started,
         request.num_computed, request.num_tokens(), num_tokens);
  take_prompt(request, num_tokens);
  add_row(plan, request, num_tokens, true);
}

}  // namespace quire
