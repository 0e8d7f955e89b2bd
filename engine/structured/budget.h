#pragma once
// What a grammar may cost. One meter counts compilation, and again every mask; going over throws
// GrammarFailure{limit}, so that no grammar can hold a thread or grow without end.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <stop_token>
#include <utility>

#include "engine/structured/grammar_error.h"

namespace quire::structured {

// Times are of the thread's processor: a busy machine makes no grammar more costly.
struct GrammarLimits {
  std::chrono::milliseconds compile_time{5'000};
  std::chrono::milliseconds step_time{100};  // one mask or one token
  std::size_t regex_nodes = 2'000'000;
  std::size_t grammar_states = 400'000;
  std::size_t disjuncts = 4'096;        // alternatives of one schema once allOf is merged
  std::size_t memory_bytes = 256u << 20;  // regular expressions and parser states together
  int depth = 2'000;                    // nested rules in a text
};

// What the calling thread has computed; while it waits, it stands still.
struct ThreadClock {
  static std::chrono::nanoseconds now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

class Meter {
 public:
  // Counts from here on, on this thread.
  void start(std::chrono::nanoseconds limit, std::stop_token stop = {}) {
    started_ = ThreadClock::now();
    deadline_ = started_ + limit;
    stop_ = std::move(stop);
  }
  std::chrono::nanoseconds spent() const { return ThreadClock::now() - started_; }

  // Looks at the clock, and whether it is asked to stop, once in a while; cheap enough for inner loops.
  void count(std::uint32_t work = 1) {
    work_ += work;
    if (work_ < kBetweenLooks) return;
    work_ = 0;
    if (ThreadClock::now() > deadline_ || stop_.stop_requested()) {
      throw GrammarFailure(GrammarErrorKind::limit, "the grammar takes too long to evaluate");
    }
  }

 private:
  static constexpr std::uint32_t kBetweenLooks = 4'096;
  std::chrono::nanoseconds started_{0}, deadline_ = std::chrono::nanoseconds::max();
  std::stop_token stop_;
  std::uint32_t work_ = 0;
};

}  // namespace quire::structured
