#include "engine/structured/mask_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <exception>
#include <string>
#include <utility>

namespace quire {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// The step is more urgent: where there are no processors to spare, short work takes a tenth of one,
// long work a thirtieth.
constexpr int kShortNiceness = 10, kLongNiceness = 15;
constexpr nanoseconds kShort = milliseconds(4);
constexpr int kLongerEachTime = 5, kMostTries = 4;
// So many masks of a request are not tried on the engine's thread after one that was too long.
constexpr int kDistrust = 8;
constexpr nanoseconds kLeastTry = std::chrono::microseconds(100);

}  // namespace

// Whoever is at work on a job owns it but for is_dropped; when it is done, the engine's thread
// does.
struct MaskJob {
  RequestId request;
  std::unique_ptr<TokenConstraint> constraint;
  std::vector<TokenId> taken;
  std::size_t num_accepted = 0;  // of those
  int most_drafts = 0;
  bool has_drafts = false;  // next.drafts are decided
  NextMasks next;
  Error error;
  int tries = 0, distrust = 0;
  bool is_dropped = false;  // under the queue's lock
  bool has_failed = false;
  bool is_ready = false;  // of the engine's thread, as is_open
  bool is_open = false;
  std::stop_source stop;
  Slice::Clock::time_point until;  // then it is given up

  bool is_overdue() const { return Slice::Clock::now() >= until; }
  void give_up() {
    has_failed = true;
    error = {ErrorCode::overloaded,
             "what may come next in the answer was not worked out in time, as the server has no "
             "processor to spare; try again later",
             {}};
  }

  enum class Outcome : std::uint8_t { made, failed, out_of_time };

  Outcome run(const Slice& slice, std::size_t width) {
    try {
      constraint->limit(slice);
      accept_taken();
      choose_drafts();
      fill_masks(width);
      return Outcome::made;
    } catch (const OutOfTime&) {
      return Outcome::out_of_time;
    } catch (const Failure& failure) {
      error = failure.error();
    } catch (const std::exception& e) {
      error = {
          ErrorCode::internal, std::string("the constraint on its output failed: ") + e.what(), {}};
    }
    return Outcome::failed;
  }

 private:
  void accept_taken() {
    for (; num_accepted < taken.size(); ++num_accepted) {
      if (!constraint->accept(taken[num_accepted])) {
        throw Failure(ErrorCode::internal,
                      "the constraint on its output does not allow what was drawn");
      }
    }
  }

  void choose_drafts() {
    if (std::exchange(has_drafts, true) || most_drafts == 0) return;
    auto forced = constraint->forced_tokens(most_drafts);
    if (!forced.empty()) next.drafts = std::move(forced);
  }

  // What was filled before the time was over stays.
  void fill_masks(std::size_t width) {
    struct Ahead {
      TokenConstraint& constraint;
      int count = 0;
      ~Ahead() { constraint.rollback(count); }
    } ahead{*constraint};
    while (true) {
      if (ahead.count == next.count) {
        next.words.resize(static_cast<std::size_t>(next.count) * width);
        next.words.resize(next.words.size() + width, ~0u);
        constraint->fill(std::span(next.words).last(width));
        next.is_complete.push_back(constraint->is_complete() ? 1 : 0);
        ++next.count;
      }
      const auto index = static_cast<std::size_t>(ahead.count);
      if (index == next.drafts.size() || !constraint->accept(next.drafts[index])) return;
      ++ahead.count;
    }
  }
};

ConstraintMasks::ConstraintMasks(MaskQueue& queue, std::shared_ptr<MaskJob> job)
    : queue_(queue), job_(std::move(job)) {}

ConstraintMasks::~ConstraintMasks() { queue_.drop(job_); }

bool ConstraintMasks::is_ready() const { return job_->is_ready; }

const NextMasks& ConstraintMasks::next() const {
  assert(is_ready());
  return job_->next;
}

void ConstraintMasks::advance(std::span<const TokenId> taken, std::span<const TokenId> drafts,
                              int most_drafts) {
  assert(is_ready());
  MaskJob& job = *job_;
  job.is_ready = false;
  job.taken.assign(taken.begin(), taken.end());
  job.num_accepted = 0;
  job.most_drafts = most_drafts;
  job.has_drafts = false;
  job.next.drafts.assign(drafts.begin(), drafts.end());
  job.next.count = 0;
  job.next.words.clear();
  job.next.is_complete.clear();
  job.tries = 0;
  queue_.submit(job_);
}

MaskQueue::MaskQueue(std::size_t width, std::function<void()> wake, int num_threads,
                     milliseconds patience)
    : width_(width), wake_(std::move(wake)), patience_(patience) {
  assert(num_threads >= 2);
  for (int i = 0; i < num_threads; ++i)
    threads_.emplace_back([this, i](const std::stop_token& stop) { help(stop, i % 2 == 1); });
}

MaskQueue::~MaskQueue() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

std::unique_ptr<ConstraintMasks> MaskQueue::add(RequestId request,
                                                std::unique_ptr<TokenConstraint> constraint) {
  auto job = std::make_shared<MaskJob>();
  job->request = request;
  job->constraint = std::move(constraint);
  submit(job);
  return std::make_unique<ConstraintMasks>(*this, std::move(job));
}

void MaskQueue::submit(const JobPtr& job) {
  job->is_open = true;
  job->until = Slice::Clock::now() + patience_;
  ++num_open_;
  const std::lock_guard lock(mutex_);
  if (job->distrust == 0) return fresh_.push_back(job);
  --job->distrust;
  tried_.push_back(job);
  arrived_.notify_all();
}

// A constraint may be the last to hold a large grammar: it is not the engine's thread that frees
// it.
void MaskQueue::drop(const JobPtr& job) {
  if (std::exchange(job->is_open, false)) --num_open_;
  const std::lock_guard lock(mutex_);
  job->is_dropped = true;
  job->stop.request_stop();
  for (auto* jobs : {&fresh_, &tried_, &slow_}) std::erase(*jobs, job);
  std::erase(done_, job);
  dead_.push_back(job);
  arrived_.notify_all();
}

void MaskQueue::work(nanoseconds budget) {
  const auto end = Slice::Clock::now() + budget;
  const nanoseconds one = std::max(budget / 4, kLeastTry);
  std::unique_lock lock(mutex_);
  while (!fresh_.empty()) {
    const auto now = Slice::Clock::now();
    if (now >= end) break;
    const JobPtr job = std::move(fresh_.front());
    fresh_.pop_front();
    make(lock, job, {.until = std::min(end, now + one), .waits = false});
    if (job->tries > 0) job->distrust = kDistrust;
  }
  if (!fresh_.empty() || !tried_.empty() || !slow_.empty()) arrived_.notify_all();
}

std::vector<MaskQueue::Done> MaskQueue::take() {
  std::vector<JobPtr> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs.swap(done_);
  }
  std::vector<Done> done;
  for (const JobPtr& job : jobs) {
    job->is_open = false;
    job->is_ready = !job->has_failed;
    --num_open_;
    done.push_back({job->request, job->error, job->has_failed});
  }
  return done;
}

bool MaskQueue::has_job(bool is_patient) const {
  return !fresh_.empty() || !tried_.empty() || (is_patient && !slow_.empty());
}

// Short ones first, but one thread looks at those that take long before it helps with others.
MaskQueue::JobPtr MaskQueue::next_job(bool is_patient) {
  for (auto* jobs : {is_patient ? &slow_ : &fresh_, is_patient ? &tried_ : &fresh_,
                     is_patient ? &fresh_ : &tried_}) {
    if (jobs->empty()) continue;
    JobPtr job = std::move(jobs->front());
    jobs->pop_front();
    return job;
  }
  return nullptr;
}

void MaskQueue::help(const std::stop_token& stop, bool is_patient) {
  [[maybe_unused]] const int niceness =
      ::nice(is_patient ? kLongNiceness : kShortNiceness);  // on Linux, of this thread
  std::unique_lock lock(mutex_);
  while (true) {
    const auto until = next_deadline();
    arrived_.wait_until(lock, stop, until, [&] {
      return has_job(is_patient) || !dead_.empty() || next_deadline() < until;
    });
    if (stop.stop_requested()) return;
    auto dead = std::exchange(dead_, {});
    bool brings_news = end_overdue();
    JobPtr job = next_job(is_patient);
    if (job != nullptr) {
      Slice slice{.until = job->until, .work = kShort};
      const bool is_slow = is_patient && job->tries > 1;
      for (int i = 1; is_slow && i < job->tries; ++i) slice.work *= kLongerEachTime;
      if (job->tries >= kMostTries) slice.work = nanoseconds::max();
      make(lock, job, slice);
      brings_news |= !done_.empty();  // take() may have emptied it meanwhile
    }
    lock.unlock();
    dead.clear();
    job.reset();
    if (brings_news) wake_();
    lock.lock();
  }
}

Slice::Clock::time_point MaskQueue::next_deadline() const {
  auto first = Slice::Clock::now() + std::chrono::hours(1);
  for (const auto* jobs : {&fresh_, &tried_, &slow_}) {
    for (const JobPtr& job : *jobs) first = std::min(first, job->until);
  }
  return first;
}

bool MaskQueue::end_overdue() {
  const std::size_t before = done_.size();
  for (auto* jobs : {&fresh_, &tried_, &slow_}) {
    std::erase_if(*jobs, [&](const JobPtr& job) {
      if (!job->is_overdue()) return false;
      job->give_up();
      done_.push_back(job);
      return true;
    });
  }
  return done_.size() > before;
}

void MaskQueue::make(std::unique_lock<std::mutex>& lock, const JobPtr& job, Slice slice) {
  lock.unlock();
  slice.stop = job->stop.get_token();
  const MaskJob::Outcome outcome = job->run(slice, width_);
  lock.lock();
  if (job->is_dropped) return;
  const bool is_late = outcome == MaskJob::Outcome::out_of_time;
  if (is_late && !job->is_overdue()) {
    ++job->tries;
    (job->tries > 1 ? slow_ : tried_).push_back(job);
    return arrived_.notify_all();  // whoever put it aside may not be who takes it up
  }
  job->has_failed = outcome == MaskJob::Outcome::failed;
  if (is_late) job->give_up();
  done_.push_back(job);
}

}  // namespace quire
