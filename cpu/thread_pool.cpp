#include "cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

#include "base/error.h"

namespace quire {
namespace {

constexpr auto kSpin = std::chrono::microseconds(60);  // about the gap between two operators
constexpr std::int64_t kChunksPerThread = 4;  // so that a slow core costs a quarter of its part

struct Ticket {
  std::uint32_t epoch, chunks, next;
};

std::uint64_t pack(Ticket t) {
  return std::uint64_t{t.epoch} << 32 | std::uint64_t{t.chunks} << 16 | t.next;
}

Ticket unpack(std::uint64_t bits) {
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

ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
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
  const auto chunks =
      static_cast<std::uint32_t>(std::min<std::int64_t>(pieces, threads() * kChunksPerThread));
  // Every chunk of the loop before is done, so nobody reads these.
  function_.store(function, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  count_.store(count, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  ticket_.store(pack({epoch, chunks, 0}));
  epoch_.store(epoch);
  if (sleepers_.load() > 0) epoch_.notify_all();

  while (work_on_a_chunk()) {
  }
  const auto all_done = [&] { return done_.load(std::memory_order_acquire) == chunks; };
  if (spin_until(all_done)) return;
  for (std::uint32_t done = done_.load(); done != chunks; done = done_.load()) done_.wait(done);
}

bool ThreadPool::work_on_a_chunk() {
  std::uint64_t bits = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const Ticket ticket = unpack(bits);
    if (ticket.next >= ticket.chunks) return false;
    const Function function = function_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    const std::int64_t count = count_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(bits, bits + 1, std::memory_order_acq_rel)) continue;
    function(context, count * ticket.next / ticket.chunks,
             count * (ticket.next + 1) / ticket.chunks);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == ticket.chunks) done_.notify_one();
    return true;
  }
}

void ThreadPool::worker() {
  std::uint32_t seen = 0;
  while (!stop_) {
    const std::uint32_t epoch = epoch_.load(std::memory_order_acquire);
    while (work_on_a_chunk()) {
    }
    seen = epoch;
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
