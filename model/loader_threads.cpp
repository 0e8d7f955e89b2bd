#include "model/loader_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace quire {

namespace {

constexpr std::int64_t kMostThreads = 32;      // memory is the limit long before
constexpr std::int64_t kPiecesPerThread = 8;  // so that a slow core costs an eighth of its part

}  // namespace

void for_rows_in_parallel(std::int64_t count, std::int64_t grain,
                          const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const std::int64_t threads =
      std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, std::min(kMostThreads, grains));
  const std::int64_t pieces = threads == 1 ? 1 : std::min(grains, threads * kPiecesPerThread);
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::int64_t failed = pieces;
  const auto work = [&] {
    for (std::int64_t p; (p = next++) < pieces;) {
      try {
        body(grains * p / pieces * grain, std::min(count, grains * (p + 1) / pieces * grain));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (p < failed) failure = std::current_exception();
        failed = std::min(failed, p);
      }
    }
  };
  std::vector<std::jthread> helpers;
  try {
    for (std::int64_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // Those that there are do it all.
  }
  work();
  helpers.clear();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace quire
