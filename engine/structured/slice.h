#pragma once
// How long one call of a constraint may take before it gives up, to be made again later.

#include <chrono>
#include <stop_token>

namespace quire {

// No error: the call had no effect on the text, and what it found out makes the next one shorter.
struct OutOfTime {};

struct Slice {
  using Clock = std::chrono::steady_clock;
  Clock::time_point until = Clock::time_point::max();
  std::chrono::nanoseconds work = std::chrono::nanoseconds::max();  // of the thread's processor
  bool waits = true;  // for another thread at work on the same grammar, as long as it may work
  std::stop_token stop = {};

  bool is_over() const { return until != Clock::time_point::max() && Clock::now() > until; }
};

}  // namespace quire
