#pragma once
// Writes blocks to their file beside the engine's steps: the one thread of a tier on disk. Pages stay
// where they are until the write is reported.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/kv_offload/disk_file.h"

namespace quire {

class DiskWriter {
 public:
  struct Job {
    DiskRecord record;
    int host_slot = 0;
    std::span<const std::byte> pages = {};
    Result<void> result = {};
  };

  explicit DiskWriter(const DiskFile& file);
  // Jobs that have not begun are left out.
  ~DiskWriter();
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;

  void add(Job job);
  std::vector<Job> take_done();
  void finish();  // waits until nothing is left to write

 private:
  void run();

  const DiskFile& file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<Job> done_;
  bool is_busy_ = false, ends_ = false;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
