#include "cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

#include "base/error.h"

namespace quire {
namespace {

constexpr auto kSpin = std::chrono::microseconds(60);  // about the gap between two operators
constexpr std::int64_t kUnitsPerThread = 64;  // that a loop is divided into at most
constexpr std::uint32_t kShare = 4;           // a slow core costs a quarter of its part

struct Units {
  std::uint32_t epoch, begin, end;
  std::uint32_t left() const { return end - begin; }
  std::uint32_t share() const { return (left() + kShare - 1) / kShare; }
};

std::uint64_t pack(Units u) {
  return std::uint64_t{u.epoch} << 32 | std::uint64_t{u.begin} << 16 | u.end;
}

Units unpack(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits >> 16 & 0xffff),
          static_cast<std::uint32_t>(bits & 0xffff)};
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins for kSpin at most; true as soon as condition holds.
template <class F>
bool spin_until(F&& condition) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : threads_(std::max(threads, 1)),
      ranges_(std::make_unique<Range[]>(static_cast<std::size_t>(threads_))) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker(i); });
  } catch (const std::system_error& e) {
    const std::size_t started = workers_.size() + 1;
    stop();
    throw Failure(ErrorCode::unavailable,
                  "the system gives " + std::to_string(started) + " of " + std::to_string(threads) +
                      " threads (" + e.code().message() + "); use fewer, or raise its limit");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_ = true;
  ++epoch_;
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t count, std::int64_t grain, void* context, Function function) {
  const std::int64_t pieces = (count + grain - 1) / std::max<std::int64_t>(grain, 1);
  const auto units = static_cast<std::uint32_t>(
      std::min({pieces, threads_ * kUnitsPerThread, std::int64_t{0xffff}}));
  // Every unit of the loop before is done, so nobody reads these.
  function_.store(function, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  count_.store(count, std::memory_order_relaxed);
  units_.store(units, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  const auto all = static_cast<std::uint32_t>(threads_);
  for (std::uint32_t t = 0; t < all; ++t) {
    ranges_[t].units.store(pack({epoch, units * t / all, units * (t + 1) / all}));
  }
  epoch_.store(epoch);
  if (sleepers_.load() > 0) epoch_.notify_all();

  work(0);
  const auto all_done = [&] { return done_.load(std::memory_order_acquire) == units; };
  if (spin_until(all_done)) return;
  for (std::uint32_t done = done_.load(); done != units; done = done_.load()) done_.wait(done);
}

void ThreadPool::work(int thread) {
  do {
    while (work_on_own(ranges_[static_cast<std::size_t>(thread)])) {
    }
  } while (work_on_others(thread));
}

bool ThreadPool::work_on_own(Range& range) {
  std::uint64_t bits = range.units.load(std::memory_order_acquire);
  for (;;) {
    const Units units = unpack(bits);
    if (units.left() == 0) return false;
    const std::uint32_t middle = units.begin + units.share();
    if (!range.units.compare_exchange_weak(bits, pack({units.epoch, middle, units.end}),
                                           std::memory_order_acq_rel)) {
      continue;
    }
    work_on(units.begin, middle);
    return true;
  }
}

// From the end of the first range after the thread's own that has something left.
bool ThreadPool::work_on_others(int thread) {
  for (int i = 1; i < threads_; ++i) {
    Range& range = ranges_[static_cast<std::size_t>((thread + i) % threads_)];
    std::uint64_t bits = range.units.load(std::memory_order_acquire);
    for (Units units = unpack(bits); units.left() > 0; units = unpack(bits)) {
      const std::uint32_t middle = units.end - units.share();
      if (!range.units.compare_exchange_weak(bits, pack({units.epoch, units.begin, middle}),
                                             std::memory_order_acq_rel)) {
        continue;
      }
      work_on(middle, units.end);
      return true;
    }
  }
  return false;
}

// Units that this thread has taken: the loop cannot end before they are done, so its fields stay.
void ThreadPool::work_on(std::uint32_t begin, std::uint32_t end) {
  const std::int64_t count = count_.load(std::memory_order_relaxed);
  const std::uint32_t units = units_.load(std::memory_order_relaxed);
  function_.load(std::memory_order_relaxed)(context_.load(std::memory_order_relaxed),
                                            count * begin / units, count * end / units);
  const std::uint32_t taken = end - begin;
  if (done_.fetch_add(taken, std::memory_order_acq_rel) + taken == units) done_.notify_one();
}

void ThreadPool::worker(int thread) {
  while (!stop_) {
    const std::uint32_t seen = epoch_.load(std::memory_order_acquire);
    work(thread);
    if (wait_for_work(seen)) return;
  }
}

// True when the pool ends.
bool ThreadPool::wait_for_work(std::uint32_t seen_epoch) {
  const auto changed = [&] { return epoch_.load(std::memory_order_acquire) != seen_epoch; };
  if (!spin_until(changed)) {
    ++sleepers_;
    epoch_.wait(seen_epoch);
    --sleepers_;
  }
  return stop_;
}

}  // namespace quire
