#include "engine/core/constraint_queue.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace quire {
namespace {

constexpr int kThreads = 2;  // one slow grammar does not hold up all others
constexpr std::size_t kMostKnown = 64, kMostKnownBytes = 256u << 20;
constexpr int kNiceness = 5;  // the step is more urgent

}  // namespace

ConstraintQueue::ConstraintQueue(CompileConstraint compile, std::function<void()> notify)
    : compile_(std::move(compile)), notify_(std::move(notify)) {
  for (int i = 0; i < kThreads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

ConstraintQueue::~ConstraintQueue() {
  for (std::jthread& thread : threads_) thread.request_stop();
  const std::lock_guard lock(mutex_);
  for (const auto& job : jobs_) job->stop.request_stop();
}

void ConstraintQueue::add(RequestId request, const ConstraintSpec& spec) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(known_, spec, &Known::spec);
  if (known != known_.end()) {
    done_.push_back({request, known->constraint, {}});
    return;
  }
  const auto same = std::ranges::find_if(jobs_, [&](const auto& job) { return job->spec == spec; });
  if (same != jobs_.end()) return (*same)->waiting.push_back(request);
  auto job = std::make_shared<Job>();
  job->spec = spec;
  job->waiting = {request};
  jobs_.push_back(std::move(job));
  job_arrived_.notify_one();
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

std::shared_ptr<ConstraintQueue::Job> ConstraintQueue::next_job(std::unique_lock<std::mutex>& lock,
                                                                const std::stop_token& stop) {
  const auto find = [this] {
    return std::ranges::find_if(jobs_, [](const auto& job) { return !job->is_started; });
  };
  job_arrived_.wait(lock, stop, [&] { return find() != jobs_.end(); });
  if (stop.stop_requested()) return nullptr;
  auto job = *find();
  job->is_started = true;
  return job;
}

void ConstraintQueue::work(const std::stop_token& stop) {
  [[maybe_unused]] const int niceness = ::nice(kNiceness);  // on Linux, of this thread
  while (true) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<Job> job = next_job(lock, stop);
    if (job == nullptr) return;
    lock.unlock();
    std::shared_ptr<const CompiledConstraint> constraint;
    Error error{ErrorCode::internal, "the constraint's compiler gave nothing", {}};
    try {
      constraint = compile_(job->spec, job->stop.get_token());
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
  const std::size_t bytes = constraint == nullptr ? 0 : constraint->memory_bytes();
  {
    const std::lock_guard lock(mutex_);
    for (const RequestId request : job.waiting) done_.push_back({request, constraint, error});
    std::erase_if(jobs_, [&](const auto& other) { return other.get() == &job; });
    if (constraint != nullptr) known_.push_back({job.spec, std::move(constraint), bytes});
    std::size_t together = 0;
    for (const Known& known : known_) together += known.bytes;
    while (!known_.empty() && (known_.size() > kMostKnown || together > kMostKnownBytes)) {
      together -= known_.front().bytes;
      known_.pop_front();
    }
  }
  notify_();
}

}  // namespace quire
