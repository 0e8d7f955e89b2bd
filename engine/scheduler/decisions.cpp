// Scheduler: what it decided about requests, for whoever asks why one took so long.

#include "engine/scheduler/scheduler.h"

namespace quire {

void Scheduler::decide(const Request& request, DecisionKind kind, std::int64_t first,
                       std::int64_t second, std::int64_t third) {
  constexpr std::size_t kMostUntaken = 1 << 14;
  if (decisions_.size() >= kMostUntaken) return;
  decisions_.push_back({.request = request.id(),
                        .kind = kind,
                        .time = std::chrono::steady_clock::now(),
                        .step = static_cast<std::int64_t>(step_),
                        .first = first,
                        .second = second,
                        .third = third});
}

void Scheduler::tell_wait(const Request& request, DecisionKind why, std::int64_t first,
                          std::int64_t second) {
  if (told_wait_ == request.id() && told_why_ == why) return;
  told_wait_ = request.id();
  told_why_ = why;
  decide(request, why, first, second);
}

// The others wait behind it. A step that had no room left did not look at it.
void Scheduler::tell_why_head_waits() {
  Request* const head = next_waiting();
  if (head == nullptr || head->state == RequestState::waiting_for_remote_kv) return;
  const auto running = static_cast<std::int64_t>(running_.size());
  if (running >= options_.max_num_seqs) {
    tell_wait(*head, DecisionKind::waits_for_turn, running, options_.max_num_seqs);
  } else if (budget_ == 0 || pacer_.is_full()) {
    tell_wait(*head, DecisionKind::waits_for_tokens, head->num_tokens(), 0);
  }
}

void Scheduler::take_decisions(std::vector<Decision>& out) {
  if (decisions_.empty()) return;
  if (out.empty()) {
    out.swap(decisions_);
    return;
  }
  out.insert(out.end(), decisions_.begin(), decisions_.end());
  decisions_.clear();
}

}  // namespace quire
