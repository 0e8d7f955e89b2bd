#include "engine/kv_transfer/pages/filler.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace quire {
namespace {

constexpr std::int64_t kCopiedAtOnce = 1 << 20;  // bytes, between two looks at the clock
// The step is more urgent: where there are no processors to spare, this has a tenth of one.
constexpr int kNiceness = 10;

}  // namespace

PageFiller::PageFiller(CachePages& pages, bool beside, std::function<void()> wake)
    : pages_(pages), wake_(std::move(wake)) {
  if (!beside) return;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    [[maybe_unused]] const int niceness = ::nice(kNiceness);  // on Linux, of this thread
    fill(stop);
  });
}

PageFiller::~PageFiller() = default;

void PageFiller::add(KvFetched fetched, BlockTable blocks) {
  auto parts = kv_parts(fetched.content, kCopiedAtOnce);
  std::list<Job> over;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(
        {.fetched = std::move(fetched), .blocks = std::move(blocks), .parts = std::move(parts)});
    end_if_over(std::prev(jobs_.end()), over);  // nothing to copy
  }
  arrived_.notify_one();
}

void PageFiller::cancel(RequestId request) {
  std::list<Job> over;
  const std::lock_guard lock(mutex_);
  const auto job =
      std::ranges::find_if(jobs_, [&](const Job& one) { return one.fetched.request == request; });
  if (job == jobs_.end()) return;
  job->is_whole = false;
  end_if_over(job, over);
}

void PageFiller::work(std::chrono::nanoseconds patience) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  for (auto job = next_job(); job != jobs_.end(); job = next_job()) {
    if (std::chrono::steady_clock::now() - start >= patience) return;
    copy_part(lock, job);
  }
}

bool PageFiller::needs_work() const {
  const std::lock_guard lock(mutex_);
  return !works_beside() && !jobs_.empty();
}

std::vector<PageFiller::Filled> PageFiller::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

std::list<PageFiller::Job>::iterator PageFiller::next_job() {
  return std::ranges::find_if(jobs_, [](const Job& job) { return job.has_parts(); });
}

// A job stays where it is while a part of it is under way. True: it has ended.
bool PageFiller::copy_part(std::unique_lock<std::mutex>& lock, std::list<Job>::iterator job) {
  const KvContent& part = job->parts[job->next++];
  ++job->under_way;
  lock.unlock();
  const bool fits = pages_.write(part, job->blocks, job->fetched.range->bytes());
  pages_.settle();
  lock.lock();
  --job->under_way;
  job->is_whole &= fits;
  std::list<Job> over;
  if (!end_if_over(job, over)) return false;
  lock.unlock();
  over.clear();
  lock.lock();
  return true;
}

bool PageFiller::end_if_over(std::list<Job>::iterator job, std::list<Job>& over) {
  if (job->has_parts() || job->under_way > 0) return false;
  done_.push_back({std::move(job->fetched), job->is_whole});
  over.splice(over.end(), jobs_, job);
  return true;
}

void PageFiller::fill(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, stop, [this] { return next_job() != jobs_.end(); });
    if (stop.stop_requested()) return;
    if (!copy_part(lock, next_job())) continue;
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace quire
