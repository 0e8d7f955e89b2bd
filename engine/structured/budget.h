#pragma once
// What a grammar may cost. One meter counts compilation, and again every mask; going over throws
// GrammarFailure{limit}, so that no grammar can hold a thread or grow without end.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <utility>

#include "engine/structured/grammar_error.h"
#include "engine/structured/slice.h"

namespace quire::structured {

// Times are of the thread's processor: a busy machine makes no grammar more costly.
struct GrammarLimits {
  std::chrono::milliseconds compile_time{5'000};
  std::chrono::milliseconds step_time{100};  // one mask or one token
  std::size_t regex_nodes = 2'000'000;
  std::size_t grammar_states = 400'000;
  std::size_t disjuncts = 4'096;          // alternatives of one schema once allOf is merged
  std::size_t memory_bytes = 256u << 20;  // regular expressions and parser states together
  int depth = 2'000;                      // nested rules in a text
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
  void start(std::chrono::nanoseconds limit, Slice slice = {}) {
    started_ = ThreadClock::now();
    deadline_ = started_ + limit;
    slice_end_ = slice.work < limit ? started_ + slice.work : deadline_;
    slice_ = std::move(slice);
    work_ = looks_ = 0;
  }

  // Looks at the clocks, and whether it is asked to stop, once in a while; cheap enough for inner
  // loops. Throws OutOfTime where only the slice is over: what was found out stays known.
  void count(std::uint32_t work = 1) {
    work_ += work;
    if (work_ >= kBetweenLooks) look();
  }

 private:
  void look() {
    work_ = 0;
    if (slice_.is_over()) throw OutOfTime();
    // The thread's own clock costs a system call.
    if (++looks_ % kLooksPerSystemCall != 0) return;
    const auto now = ThreadClock::now();
    if (now > slice_end_ && now <= deadline_) throw OutOfTime();
    if (now > deadline_ || slice_.stop.stop_requested()) {
      const auto limit =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - started_);
      throw GrammarFailure(
          GrammarErrorKind::limit,
          "the grammar takes more than " + std::to_string(limit.count()) + " ms of processor time");
    }
  }

  static constexpr std::uint32_t kBetweenLooks = 512, kLooksPerSystemCall = 8;
  std::chrono::nanoseconds started_{0}, deadline_ = std::chrono::nanoseconds::max();
  std::chrono::nanoseconds slice_end_ = std::chrono::nanoseconds::max();
  Slice slice_;
  std::uint32_t work_ = 0, looks_ = 0;
};

}  // namespace quire::structured
