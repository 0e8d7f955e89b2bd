#include "engine/kv_offload/disk_writer.h"

#include <utility>

namespace quire {

DiskWriter::DiskWriter(const DiskFile& file) : file_(file), thread_([this] { run(); }) {}

DiskWriter::~DiskWriter() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DiskWriter::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

std::vector<DiskWriter::Job> DiskWriter::take_done() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void DiskWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !is_busy_; });
}

void DiskWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    is_busy_ = true;
    lock.unlock();
    job.result = file_.write(job.record, job.pages);
    lock.lock();
    is_busy_ = false;
    done_.push_back(std::move(job));
    changed_.notify_all();
  }
}

}  // namespace quire
