#include "load/run.h"

#include <simdjson.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>

#include "base/error.h"
#include "base/task_group.h"

namespace quire::load {
namespace {

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

awaitable<void> sleep_seconds(double seconds) {
  constexpr double kLongest = 1e9;  // 30 years, which a clock still counts in nanoseconds
  const std::chrono::duration<double> time(std::min(seconds, kLongest));
  if (seconds > 0) co_await sleep_for(std::chrono::duration_cast<std::chrono::nanoseconds>(time));
}

// Shared by the coroutines of one run; all on one strand.
struct Run {
  const std::vector<Target>& targets;
  const Workload& workload;
  RunOptions options;
  Clock::time_point begin = Clock::now();
  std::int64_t next = 0;
  bool interrupted = false;
  Progress progress = {};
  std::vector<Record> records = {};
  std::vector<std::vector<std::unique_ptr<Client>>> idle = {};  // by target

  double now() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
  bool may_send(double at) const {
    return !interrupted && (options.requests == 0 || next < options.requests) &&
           (options.seconds == 0 || at < options.seconds);
  }
  std::size_t target_of(std::int64_t index) const {
    return static_cast<std::size_t>(index) % targets.size();
  }
  void keep(Record record) {
    if (record.outcome != Outcome::ok) ++progress.failed;
    progress.output_tokens += record.output_tokens;
    records.push_back(std::move(record));
  }
};

// All turns of one conversation; ends with the first that fails. False: nobody answered.
awaitable<bool> converse(Run& run, Client& client, std::int64_t index, double due) {
  const auto number = static_cast<std::uint64_t>(index);
  const int turns = run.workload.turns(number);
  std::vector<std::string> answers;
  Outcome outcome = Outcome::ok;
  for (int turn = 0; turn < turns && outcome == Outcome::ok; ++turn) {
    if (turn > 0) {
      due = run.now() + run.options.think_seconds;
      co_await sleep_seconds(run.options.think_seconds);
    }
    std::string answer;
    const std::string body = run.workload.body(number, answers);
    Record record = co_await client.post(run.workload.path(), body, due, answer);
    answers.push_back(std::move(answer));
    outcome = record.outcome;
    record.turn = turn;
    run.keep(std::move(record));
  }
  ++run.progress.ended;
  co_return outcome != Outcome::transport_error;
}

// Closed loop: one conversation after another.
awaitable<void> worker(Run& run) {
  const auto executor = co_await asio::this_coro::executor;
  std::vector<std::unique_ptr<Client>> clients;
  for (const Target& target : run.targets) {
    clients.push_back(std::make_unique<Client>(executor, target, run.begin));
  }
  while (run.may_send(run.now())) {
    const std::int64_t index = run.next++;
    ++run.progress.sent;
    const double due = run.now();
    if (!co_await converse(run, *clients[run.target_of(index)], index, due)) {
      co_await sleep_for(std::chrono::milliseconds(100));  // no busy loop against a dead port
    }
  }
}

awaitable<void> one_arrival(Run& run, std::int64_t index, double due) {
  const std::size_t target = run.target_of(index);
  auto& idle = run.idle[target];
  std::unique_ptr<Client> client;
  if (idle.empty()) {
    client = std::make_unique<Client>(co_await asio::this_coro::executor, run.targets[target],
                                      run.begin);
  } else {
    client = std::move(idle.back());
    idle.pop_back();
  }
  co_await converse(run, *client, index, due);
  run.idle[target].push_back(std::move(client));
}

// When conversation `count` of the run is due, after the one before was at `last`; nothing: the
// trace is over.
class Schedule {
 public:
  explicit Schedule(const Run& run)
      : trace_(run.workload.trace()),
        speed_(run.options.trace_speed),
        process_(run.options.arrivals, run.options.seed) {}

  bool is_over() const { return !trace_.empty() && row_ >= trace_.size(); }
  double due() const { return trace_.empty() ? due_ : trace_[row_].due / speed_; }
  void advance() {
    ++row_;
    if (trace_.empty()) due_ += process_.next_gap(due_);
  }

 private:
  const std::vector<TraceRow>& trace_;
  double speed_;
  Arrivals process_;
  std::size_t row_ = 0;
  double due_ = 0;
};

// Open loop: conversations are due at their times whether or not others have ended.
awaitable<void> open_loop(Run& run, TaskGroup& group) {
  Schedule schedule(run);
  while (!schedule.is_over() && run.may_send(schedule.due())) {
    co_await sleep_seconds(schedule.due() - run.now());
    if (run.progress.sent - run.progress.ended >= run.options.concurrency) {
      co_await sleep_for(std::chrono::milliseconds(1));  // shows as send lag
      continue;
    }
    ++run.progress.sent;
    group.spawn(one_arrival(run, run.next++, schedule.due()));
    schedule.advance();
  }
}

awaitable<void> report_progress(Run& run, const std::function<void(const Progress&)>& on_progress) {
  for (;;) {
    co_await sleep_for(std::chrono::seconds(1));
    run.progress.seconds = run.now();
    on_progress(run.progress);
  }
}

awaitable<void> drive(Run& run, bool open) {
  run.idle.resize(run.targets.size());
  TaskGroup group(co_await asio::this_coro::executor);
  if (open) {
    group.spawn(open_loop(run, group));
  } else {
    for (int i = 0; i < run.options.concurrency; ++i) group.spawn(worker(run));
  }
  co_await group.wait();
}

awaitable<void> run_to_end(Run& run, bool open,
                           const std::function<void(const Progress&)>& on_progress) {
  co_await first_of(drive(run, open), report_progress(run, on_progress));
}

// What was measured so far is worth a report: the first signal lets what is under way end, a second
// one ends the process. For ever.
awaitable<void> stop_on_signal(Run& run) {
  asio::signal_set signals(co_await asio::this_coro::executor, SIGINT, SIGTERM);
  co_await signals.async_wait(asio::use_awaitable);
  signals.clear();
  run.interrupted = true;
  co_await sleep_for(std::chrono::hours(24 * 365));
}

}  // namespace

awaitable<RunResult> run_load(std::vector<Target> targets, const Workload& workload,
                              RunOptions options,
                              std::function<void(const Progress&)> on_progress) {
  if (options.warmup > 0) {
    RunOptions warmup = options;
    warmup.requests = options.warmup;
    warmup.seconds = 0;
    Run run{.targets = targets, .workload = workload, .options = warmup};
    co_await drive(run, false);
  }
  // What was sent to warm up is in the server's caches: the run goes on behind it, but for a trace,
  // whose rows are all sent.
  const std::int64_t first = workload.trace().empty() ? options.warmup : 0;
  if (options.requests != 0) options.requests += first;
  Run run{.targets = targets, .workload = workload, .options = options, .next = first};
  const double cpu_before = process_cpu_seconds();
  const bool open = options.arrivals.rate > 0 || !workload.trace().empty();
  co_await first_of(run_to_end(run, open, on_progress), stop_on_signal(run));
  co_return RunResult{std::move(run.records), process_cpu_seconds() - cpu_before, run.interrupted};
}

awaitable<std::string> first_model(Target target, std::chrono::seconds patience) {
  const auto deadline = Clock::now() + patience;
  target.most_silence = std::min<std::chrono::milliseconds>(
      target.most_silence, std::max(patience, std::chrono::seconds(10)));
  const std::string url = target.url.text();
  std::string reply, problem;
  do {
    Client client(co_await asio::this_coro::executor, target, Clock::now());
    try {
      reply = co_await client.get("/v1/models");
      break;
    } catch (const HttpRefusal& refusal) {
      problem = url + ": " + refusal.what();
      if (refusal.status == 401 || refusal.status == 403)
        throw Failure(ErrorCode::unavailable, problem + "; give the server's key with --api-key");
    } catch (const std::exception& error) {
      problem = "no server at " + url + ": " + error.what();
    }
    co_await sleep_for(std::chrono::milliseconds(200));
  } while (Clock::now() < deadline);
  if (reply.empty()) throw Failure(ErrorCode::unavailable, problem);
  simdjson::dom::parser parser;
  std::string_view id;
  if (parser.parse(reply).at_pointer("/data/0/id").get(id) != simdjson::SUCCESS) {
    throw Failure(ErrorCode::invalid_argument, "GET /v1/models lists no model");
  }
  co_return std::string(id);
}

}  // namespace quire::load
