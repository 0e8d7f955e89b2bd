#pragma once
// Workers for loops over rows. One thread at a time calls parallel_for and takes part itself; the
// loop is over when every chunk is done, so a worker that was not scheduled holds nothing up.
// Workers spin for a moment after work (the next operator is near) and then sleep.

#include <atomic>
#include <cstdint>
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

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // body(begin, end) over pieces of [0, count) of about grain or more; the caller's thread alone
  // runs what is not worth sharing. Pieces are handed out as threads ask for them. body must not
  // throw.
  template <class F>
  void parallel_for(std::int64_t count, std::int64_t grain, F&& body) {
    if (count <= 0) return;
    if (workers_.empty() || count <= grain) return body(std::int64_t{0}, count);
    using Body = std::remove_reference_t<F>;
    run(count, grain, &body, [](void* context, std::int64_t begin, std::int64_t end) {
      (*static_cast<Body*>(context))(begin, end);
    });
  }

 private:
  void stop();
  using Function = void (*)(void* context, std::int64_t begin, std::int64_t end);
  void run(std::int64_t count, std::int64_t grain, void* context, Function function);
  bool work_on_a_chunk();
  void worker();
  bool wait_for_work(std::uint32_t seen_epoch);

  // epoch (32 bits), number of chunks (16), next chunk (16): a chunk is taken by compare-exchange
  // on the whole, so nobody takes a chunk of one loop with the fields of another.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<Function> function_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<std::int64_t> count_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};   // chunks of the current loop
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // what sleepers wait on
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace quire
