#include "engine/core/constraint_queue.h"

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
constexpr std::array<int, 2> kNiceness{10, 19};  // by thread; the step is more urgent

}  // namespace

ConstraintQueue::ConstraintQueue(CompileConstraint compile, std::function<void()> notify)
    : compile_(std::move(compile)), notify_(std::move(notify)) {
  for (std::size_t i = 0; i < kMostTries.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) {
      [[maybe_unused]] const int niceness = ::nice(kNiceness[i]);  // on Linux, of this thread
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
  if (same != jobs_.end()) return (*same)->waiting.push_back(request);
  auto job = std::make_shared<Job>();
  job->spec = spec;
  job->client = client;
  job->waiting = {request};
  jobs_.push_back(std::move(job));
  job_arrived_.notify_all();
}

void ConstraintQueue::cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(done_, [&](const Done& done) { return done.request == request; });
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (std::erase((*job)->waiting, request) == 0 || !(*job)->waiting.empty()) continue;
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
  job_arrived_.wait(lock, stop, [&] { return (job = find_job(most_tries)) != nullptr; });
  if (stop.stop_requested()) return nullptr;
  if (jobs_.size() == 1) turns_.clear();
  turns_[job->client] = ++turn_;
  job->is_started = true;
  return job;
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
    for (const RequestId request : job.waiting) done_.push_back({request, constraint, error});
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
