#pragma once
// Fills requests' blocks with what was fetched for them, part by part. Where the host writes the
// cache's memory itself a thread of its own does it beside the steps, which leave these blocks
// alone until take() has told of them; else the engine's thread does, between steps. The engine's
// thread owns it.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "engine/kv_transfer/pages/cache_pages.h"
#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {

class PageFiller {
 public:
  // `beside`: with a thread, which calls `wake` when take() has something. The pages outlive this.
  PageFiller(CachePages& pages, bool beside, std::function<void()> wake);
  // What is not copied is left out.
  ~PageFiller();
  PageFiller(const PageFiller&) = delete;
  PageFiller& operator=(const PageFiller&) = delete;

  bool works_beside() const { return thread_.joinable(); }

  void add(KvFetched fetched, BlockTable blocks);
  // The rest of it is left out.
  void cancel(RequestId request);
  // The caller copies too, for no longer than this and a part; not at all for 0.
  void work(std::chrono::nanoseconds patience);
  // Is something left that nobody but work() copies?
  bool needs_work() const;

  struct Filled {
    KvFetched fetched;
    bool is_whole = false;  // else it was cancelled, or a state has no block
  };
  std::vector<Filled> take();

 private:
  struct Job {
    KvFetched fetched;
    BlockTable blocks;
    std::vector<KvContent> parts;
    std::size_t next = 0;  // part that nobody has begun
    int under_way = 0;     // parts
    bool is_whole = true;

    bool has_parts() const { return is_whole && next < parts.size(); }
  };

  // `over` takes what has ended, to be destroyed without the lock: it may be thousands of parts.
  std::list<Job>::iterator next_job();
  bool copy_part(std::unique_lock<std::mutex>& lock, std::list<Job>::iterator job);
  bool end_if_over(std::list<Job>::iterator job, std::list<Job>& over);
  void fill(const std::stop_token& stop);

  CachePages& pages_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::list<Job> jobs_;
  std::vector<Filled> done_;
  std::jthread thread_;  // last: it uses what is above
};

}  // namespace quire
