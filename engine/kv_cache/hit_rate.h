#pragma once
// The prefix cache's hit rate over the most recent requests.

#include <cstdint>
#include <deque>

namespace quire {

struct PrefixLookups {
  std::int64_t requests = 0;
  std::int64_t queries = 0;  // tokens
  std::int64_t hits = 0;     // tokens
};

class HitRate {
 public:
  explicit HitRate(std::int64_t window_requests) : window_(window_requests) {}

  // One step's lookups. Whole steps leave the window, the oldest first.
  void add(const PrefixLookups& step) {
    if (step.requests == 0) return;
    steps_.push_back(step);
    add_to_total(step, 1);
    while (steps_.size() > 1 && total_.requests > window_) {
      add_to_total(steps_.front(), -1);
      steps_.pop_front();
    }
  }

  // The cache was emptied.
  void reset() {
    steps_.clear();
    total_ = {};
  }

  const PrefixLookups& total() const { return total_; }
  double rate() const {
    return total_.queries == 0 ? 0 : static_cast<double>(total_.hits) / total_.queries;
  }

 private:
  void add_to_total(const PrefixLookups& step, int sign) {
    total_.requests += sign * step.requests;
    total_.queries += sign * step.queries;
    total_.hits += sign * step.hits;
  }

  std::int64_t window_;
  std::deque<PrefixLookups> steps_;
  PrefixLookups total_;
};

}  // namespace quire
