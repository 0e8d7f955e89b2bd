#pragma once
// How operators are timed, and what this machine can do at most with as many threads as the case has.

#include <time.h>

#include <algorithm>
#include <chrono>

#include "cpu/machine_limits.h"

namespace quire::perf {

// Seconds of this thread on a core: what one thread is timed with, so that being put aside for
// other processes does not count.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of several repeats for about a quarter of a second: the best one.
template <class F>
double best_seconds(int threads, F&& body) {
  const auto now = threads == 1 ? thread_seconds : wall_seconds;
  const double end = now() + 0.25;
  double best = 1e30;
  body();
  do {
    const double begin = now();
    body();
    best = std::min(best, now() - begin);
  } while (now() < end);
  return best;
}

class CpuLimits {
 public:
  explicit CpuLimits(const CpuOptions& options);
  int threads() const { return threads_; }
  double read_gb() const { return limits_.read_gb; }
  double bf16_gflops() const { return limits_.bf16_gflops; }
  double f32_gflops() const { return limits_.f32_gflops; }
  double int8_gops() const { return limits_.int8_gops; }
  void print() const;
  // Probes once more; other work on the machine shows as a difference.
  void print_again() const;

 private:
  int threads_;
  CpuIsa isa_;
  MachineLimits limits_;
};

}  // namespace quire::perf
