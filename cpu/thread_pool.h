#pragma once
// Workers for loops over rows. One thread at a time calls parallel_for and takes part itself. Each
// thread has a range of its own, the same part of every loop of one length, and works through it in
// order: what it fetches ahead is its own, and so is the memory it has touched first. Who is done
// takes from the end of others' ranges, so a worker that was not scheduled holds nothing up.
// Workers spin for a moment after work (the next operator is near) and then sleep.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace quire {

class ThreadPool {
 public:
  // threads counts the caller: 1 starts no worker.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // body(begin, end) over pieces of [0, count) of about grain or more; the caller's thread alone
  // runs what is not worth sharing. A thread takes a quarter of what its range still holds, so
  // pieces are large first and small in the end. body must not throw.
  template <class F>
  void parallel_for(std::int64_t count, std::int64_t grain, F&& body) {
    if (count <= 0) return;
    if (threads_ == 1 || count <= grain) return body(std::int64_t{0}, count);
    using Body = std::remove_reference_t<F>;
    run(count, grain, &body, [](void* context, std::int64_t begin, std::int64_t end) {
      (*static_cast<Body*>(context))(begin, end);
    });
  }

 private:
  // epoch (32 bits), first unit (16), end (16): units are taken by compare-exchange on the whole, so
  // nobody takes units of one loop with the fields of another.
  struct alignas(64) Range {
    std::atomic<std::uint64_t> units{0};
  };

  void stop();
  using Function = void (*)(void* context, std::int64_t begin, std::int64_t end);
  void run(std::int64_t count, std::int64_t grain, void* context, Function function);
  bool work_on_own(Range& range);
  bool work_on_others(int thread);
  void work(int thread);
  void work_on(std::uint32_t begin, std::uint32_t end);
  void worker(int thread);
  bool wait_for_work(std::uint32_t seen_epoch);

  const int threads_;
  std::unique_ptr<Range[]> ranges_;  // of each thread, the caller's first
  std::atomic<Function> function_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<std::int64_t> count_{0};
  std::atomic<std::uint32_t> units_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};   // units of the current loop
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // what sleepers wait on
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace quire
