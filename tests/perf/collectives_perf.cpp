// What ranks of a CPU pay for a sum: all_reduce() of a step's hidden states by two threads beside
// memcpy of as many bytes by one.
//
//   collectives_perf [--ranks N]
//
// Medians of wall time, and the best of it: whoever waits, waits for a core too.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "cpu/shared_collectives.h"
#include "tests/perf/cpu_limits.h"

namespace quire::perf {
namespace {

constexpr int kRepeats = 400;

struct Times {
  double median = 0, best = 0;  // microseconds
};

template <class F>
Times time_of(F&& body) {
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const double begin = wall_seconds();
    body();
    seconds.push_back(wall_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  return {1e6 * seconds[kRepeats / 2], 1e6 * seconds.front()};
}

Times all_reduce(int ranks, std::int64_t floats) {
  constexpr std::size_t kFate = 4096;
  const SharedMemory memory = SharedMemory::create("perf", kFate + shared_collectives_bytes(ranks));
  auto& fate = *reinterpret_cast<SharedFate*>(memory.data());
  Times times;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto own = make_shared_collectives(memory.data() + kFate, fate, rank, ranks);
      std::vector<float> values(static_cast<std::size_t>(floats), 0.f);
      const TensorView view(values.data(), DType::f32, {1, floats});
      const Times taken =
          time_of([&] { own->all_reduce(view, StreamRef::from_handle(nullptr)); });
      if (rank == 0) times = taken;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return times;
}

Times copy(std::int64_t floats) {
  std::vector<float> from(static_cast<std::size_t>(floats), 1.f), to(from.size());
  return time_of([&] {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    asm volatile("" : : "g"(to.data()) : "memory");
  });
}

void run(int ranks) {
  fmt::print("{:>12} {:>24} {:>24}\n", "bytes", "all_reduce us (best)", "memcpy us (best)");
  for (const std::int64_t floats : {1, 4096, 16'384, 65'536, 262'144, 1'048'576, 4'194'304}) {
    const Times sum = all_reduce(ranks, floats), moved = copy(floats);
    fmt::print("{:>12} {:>14.1f} ({:>7.1f}) {:>14.1f} ({:>7.1f})\n", floats * 4, sum.median,
               sum.best, moved.median, moved.best);
  }
}

}  // namespace
}  // namespace quire::perf

int main(int argc, char** argv) {
  int ranks = 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--ranks") ranks = std::atoi(argv[i + 1]);
  }
  if (ranks < 1 || ranks > 64) return 2;
  quire::perf::run(ranks);
}
