#pragma once
// Compiles constraints beside the engine's steps. Equal specifications are compiled once, for
// everyone who waits for them, and the latest few stay, by number and bytes. Owned by the engine thread, which adds,
// cancels and takes; threads of its own compile.

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/structured/token_constraint.h"

namespace quire {

class ConstraintQueue {
 public:
  // notify is called on a worker thread when take() has something.
  ConstraintQueue(CompileConstraint compile, std::function<void()> notify);
  // Asks what is being compiled to stop, and waits for it.
  ~ConstraintQueue();

  struct Done {
    RequestId request;
    std::shared_ptr<const CompiledConstraint> constraint;  // null: `error` says why
    Error error;
  };

  void add(RequestId request, const ConstraintSpec& spec);
  // Nobody waits for it any more: the request's Done does not come.
  void cancel(RequestId request);
  std::vector<Done> take();

 private:
  struct Job {
    ConstraintSpec spec;
    std::vector<RequestId> waiting;
    std::stop_source stop;
    bool is_started = false;
  };
  struct Known {
    ConstraintSpec spec;
    std::shared_ptr<const CompiledConstraint> constraint;
    std::size_t bytes;  // when it was compiled
  };

  void work(const std::stop_token& stop);
  std::shared_ptr<Job> next_job(std::unique_lock<std::mutex>& lock, const std::stop_token& stop);
  void finish(const Job& job, std::shared_ptr<const CompiledConstraint> constraint,
              const Error& error);

  const CompileConstraint compile_;
  const std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable_any job_arrived_;
  std::list<std::shared_ptr<Job>> jobs_;  // waiting and being compiled
  std::deque<Known> known_;               // the latest last
  std::vector<Done> done_;
  std::vector<std::jthread> threads_;  // last: they use what is above
};

}  // namespace quire
