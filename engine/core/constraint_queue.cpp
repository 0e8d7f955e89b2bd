#include "engine/core/constraint_queue.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <tuple>
#include <utility>

namespace quire {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// What one call of a compilation may take, by how often it was tried; then as long as it needs.
constexpr std::array<nanoseconds, 2> kSlices{milliseconds(30), milliseconds(300)};
constexpr int kAnyTries = static_cast<int>(kSlices.size());
constexpr std::array<int, 2> kMostTries{0, kAnyTries};  // by thread

constexpr std::size_t kMostKnown = 64, kMostKnownBytes = 256u << 20;
// The step is more urgent: where there are no processors to spare, each thread has a tenth of one.
constexpr int kNiceness = 10;

}  // namespace

ConstraintQueue::ConstraintQueue(CompileConstraint compile, std::function<void()> notify,
                                 milliseconds patience)
    : compile_(std::move(compile)), notify_(std::move(notify)), patience_(patience) {
  for (std::size_t i = 0; i < kMostTries.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) {
      [[maybe_unused]] const int niceness = ::nice(kNiceness);  // on Linux, of this thread
      work(stop, kMostTries[i]);
    });
  }
}

ConstraintQueue::~ConstraintQueue() {
  for (std::jthread& thread : threads_) thread.request_stop();
  const std::lock_guard lock(mutex_);
  for (const JobPtr& job : jobs_) job->stop.request_stop();
}

void ConstraintQueue::add(RequestId request, std::uint64_t client, const ConstraintSpec& spec) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(known_, spec, &Known::spec);
  if (known != known_.end()) {
    done_.push_back({request, known->constraint, known->error});
    return;
  }
  const auto same = std::ranges::find_if(jobs_, [&](const auto& job) { return job->spec == spec; });
  const Waiting waiting{request, Clock::now() + patience_};
  if (same != jobs_.end()) return (*same)->waiting.push_back(waiting);
  auto job = std::make_shared<Job>();
  job->spec = spec;
  job->client = client;
  job->waiting = {waiting};
  jobs_.push_back(std::move(job));
  job_arrived_.notify_all();
}

void ConstraintQueue::cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(done_, [&](const Done& done) { return done.request == request; });
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    auto& waiting = (*job)->waiting;
    const auto is_it = [&](const Waiting& one) { return one.request == request; };
    if (std::erase_if(waiting, is_it) == 0 || !waiting.empty()) continue;
    (*job)->stop.request_stop();
    jobs_.erase(job);
    return;
  }
}

std::vector<ConstraintQueue::Done> ConstraintQueue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

// The one that was tried least, of the client whose turn is longest ago, the first of those.
ConstraintQueue::JobPtr ConstraintQueue::find_job(int most_tries) const {
  const auto key = [this](const Job& job) {
    const auto turn = turns_.find(job.client);
    return std::tuple(job.tries, turn == turns_.end() ? 0 : turn->second);
  };
  JobPtr best;
  for (const JobPtr& job : jobs_) {
    if (job->is_started || job->tries > most_tries) continue;
    if (best == nullptr || key(*job) < key(*best)) best = job;
  }
  return best;
}

ConstraintQueue::JobPtr ConstraintQueue::next_job(std::unique_lock<std::mutex>& lock,
                                                  const std::stop_token& stop, int most_tries) {
  JobPtr job;
  while (job == nullptr && !stop.stop_requested()) {
    end_overdue(lock);
    const Clock::time_point until = next_deadline();
    job_arrived_.wait_until(lock, stop, until, [&] {
      return (job = find_job(most_tries)) != nullptr || next_deadline() < until;
    });
  }
  if (stop.stop_requested()) return nullptr;
  if (jobs_.size() == 1) turns_.clear();
  turns_[job->client] = ++turn_;
  job->is_started = true;
  return job;
}

ConstraintQueue::Clock::time_point ConstraintQueue::next_deadline() const {
  auto first = Clock::now() + std::chrono::hours(1);
  for (const JobPtr& job : jobs_) {
    for (const Waiting& waiting : job->waiting) first = std::min(first, waiting.until);
  }
  return first;
}

// What is compiled for nobody stops, as if it were cancelled.
void ConstraintQueue::end_overdue(std::unique_lock<std::mutex>& lock) {
  const auto now = Clock::now();
  const std::size_t before = done_.size();
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = **at;
    std::erase_if(job.waiting, [&](const Waiting& waiting) {
      if (waiting.until > now) return false;
      done_.push_back({waiting.request, nullptr,
                       {ErrorCode::overloaded,
                        fmt::format("the grammar of the answer was not compiled within {} s, as the "
                                    "server has no processor to spare; try again later",
                                    std::chrono::duration_cast<std::chrono::seconds>(patience_).count()),
                        {}}});
      return true;
    });
    if (job.waiting.empty()) job.stop.request_stop();
    at = job.waiting.empty() ? jobs_.erase(at) : std::next(at);
  }
  if (done_.size() == before) return;
  lock.unlock();
  notify_();
  lock.lock();
}

void ConstraintQueue::try_again(const JobPtr& job) {
  const std::lock_guard lock(mutex_);
  job->is_started = false;
  ++job->tries;
  job_arrived_.notify_all();
}

void ConstraintQueue::work(const std::stop_token& stop, int most_tries) {
  while (true) {
    std::unique_lock lock(mutex_);
    const JobPtr job = next_job(lock, stop, most_tries);
    if (job == nullptr) return;
    lock.unlock();
    Slice slice{.stop = job->stop.get_token()};
    if (job->tries < kAnyTries) slice.work = kSlices[static_cast<std::size_t>(job->tries)];
    std::shared_ptr<const CompiledConstraint> constraint;
    Error error{ErrorCode::internal, "the constraint's compiler gave nothing", {}};
    try {
      constraint = compile_(job->spec, slice);
    } catch (const OutOfTime&) {
      try_again(job);
      continue;
    } catch (const Failure& failure) {
      error = failure.error();
    } catch (const std::exception& e) {
      error.detail = std::string("the constraint could not be compiled: ") + e.what();
    }
    finish(*job, std::move(constraint), error);
  }
}

void ConstraintQueue::finish(const Job& job, std::shared_ptr<const CompiledConstraint> constraint,
                             const Error& error) {
  std::vector<Known> forgotten;  // freed once nobody waits for the lock
  const std::size_t bytes =
      job.spec.text.size() + (constraint == nullptr ? 0 : constraint->memory_bytes());
  {
    const std::lock_guard lock(mutex_);
    for (const Waiting& waiting : job.waiting)
      done_.push_back({waiting.request, constraint, error});
    std::erase_if(jobs_, [&](const auto& other) { return other.get() == &job; });
    // A refusal is one for everybody, unless it was asked to give up.
    const bool is_final = constraint != nullptr || (!job.stop.stop_requested() &&
                                                    error.code == ErrorCode::invalid_argument);
    if (is_final) known_.push_back({job.spec, std::move(constraint), error, bytes});
    forgotten = forget();
  }
  notify_();
}

std::vector<ConstraintQueue::Known> ConstraintQueue::forget() {
  std::vector<Known> forgotten;
  std::size_t together = 0;
  for (const Known& known : known_) together += known.bytes;
  while (!known_.empty() && (known_.size() > kMostKnown || together > kMostKnownBytes)) {
    together -= known_.front().bytes;
    forgotten.push_back(std::move(known_.front()));
    known_.pop_front();
  }
  return forgotten;
}

}  // namespace quire
