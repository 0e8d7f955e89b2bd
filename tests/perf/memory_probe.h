#pragma once
// What this machine's memory does right now, to hold other figures against.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace quire::perf {

// Seconds of this thread on a core: being put aside for others does not count.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Nanoseconds of a load that depends on the one before and misses the caches.
inline double missing_load_ns() {
  constexpr std::size_t kLines = std::size_t{1} << 20;  // 64 MiB
  struct alignas(64) Line {
    std::uint32_t next = 0;
  };
  std::vector<std::uint32_t> order(kLines);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::vector<Line> lines(kLines);
  for (std::size_t i = 0; i < kLines; ++i) lines[order[i]].next = order[(i + 1) % kLines];
  constexpr int kLoads = 1 << 20;
  std::uint32_t at = 0;
  const double start = thread_seconds();
  for (int i = 0; i < kLoads; ++i) at = lines[at].next;
  const double seconds = thread_seconds() - start;
  return at == kLines ? 0 : seconds * 1e9 / kLoads;
}

inline double memcpy_gb_per_s() {
  std::vector<char> from(std::size_t{64} << 20, 1), to(from.size());
  std::memcpy(to.data(), from.data(), from.size());
  const double start = thread_seconds();
  constexpr int kTimes = 8;
  for (int i = 0; i < kTimes; ++i) {
    from[static_cast<std::size_t>(i)] = static_cast<char>(i);
    std::memcpy(to.data(), from.data(), from.size());
  }
  return kTimes * static_cast<double>(from.size()) / (thread_seconds() - start) / 1e9;
}

}  // namespace quire::perf
