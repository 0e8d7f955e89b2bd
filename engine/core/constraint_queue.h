#pragma once
// Compiles constraints beside the engine's steps. Equal specifications are compiled once, for
// everyone who waits for them; what came out, grammar or refusal, is kept for the latest few, by
// number and bytes. Owned by the engine thread, which adds, cancels and takes; threads of its own
// compile.
//
// Whoever asks for something quick waits for no one who does not: a compilation gets a short time
// first, a longer one later, and all there is only then; one thread never works on long ones. Among
// equals clients take turns. Nobody waits longer than kPatience, however busy the machine is: such a
// request ends with ErrorCode::overloaded, and may be sent again.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/structured/token_constraint.h"

namespace quire {

class ConstraintQueue {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(60);

  // notify is called on a worker thread when take() has something.
  ConstraintQueue(CompileConstraint compile, std::function<void()> notify,
                  std::chrono::milliseconds patience = kPatience);
  // Asks what is being compiled to stop, and waits for it.
  ~ConstraintQueue();

  struct Done {
    RequestId request;
    std::shared_ptr<const CompiledConstraint> constraint;  // null: `error` says why
    Error error;
  };

  void add(RequestId request, std::uint64_t client, const ConstraintSpec& spec);
  // Nobody waits for it any more: the request's Done does not come.
  void cancel(RequestId request);
  std::vector<Done> take();

 private:
  struct Waiting {
    RequestId request;
    Clock::time_point until;
  };
  struct Job {
    ConstraintSpec spec;
    std::uint64_t client = 0;  // who asked first
    std::vector<Waiting> waiting;
    std::stop_source stop;
    int tries = 0;
    bool is_started = false;
  };
  struct Known {
    ConstraintSpec spec;
    std::shared_ptr<const CompiledConstraint> constraint;  // null: refused
    Error error;
    std::size_t bytes;  // when it was compiled
  };
  using JobPtr = std::shared_ptr<Job>;

  void work(const std::stop_token& stop, int most_tries);
  JobPtr find_job(int most_tries) const;
  JobPtr next_job(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, int most_tries);
  Clock::time_point next_deadline() const;
  void end_overdue(std::unique_lock<std::mutex>& lock);
  void try_again(const JobPtr& job);
  void finish(const Job& job, std::shared_ptr<const CompiledConstraint> constraint,
              const Error& error);
  std::vector<Known> forget();

  const CompileConstraint compile_;
  const std::function<void()> notify_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable_any job_arrived_;
  std::list<JobPtr> jobs_;                                  // waiting and being compiled
  std::unordered_map<std::uint64_t, std::uint64_t> turns_;  // by client: its latest
  std::uint64_t turn_ = 0;
  std::deque<Known> known_;  // the latest last
  std::vector<Done> done_;
  std::vector<std::jthread> threads_;  // last: they use what is above
};

}  // namespace quire
