#include "load/run.h"

#include <simdjson.h>
#include <sys/resource.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/this_coro.hpp>

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

// Shared by the coroutines of one run; all on one strand.
struct Run {
  Target target;
  const Workload& workload;
  RunOptions options;
  Clock::time_point begin;
  std::int64_t next = 0;
  Progress progress = {};
  std::vector<Record> records = {};
  std::vector<std::unique_ptr<Client>> idle = {};

  double now() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
  bool may_send(double at) const {
    return (options.requests == 0 || next < options.requests) &&
           (options.seconds == 0 || at < options.seconds);
  }
  void keep(Record record) {
    ++progress.ended;
    if (record.outcome != Outcome::ok) ++progress.failed;
    progress.output_tokens += record.output_tokens;
    records.push_back(std::move(record));
  }
};

// Closed loop: one request after another.
awaitable<void> worker(Run& run) {
  Client client(co_await asio::this_coro::executor, run.target, run.begin);
  while (run.may_send(run.now())) {
    const std::int64_t index = run.next++;
    ++run.progress.sent;
    Record record = co_await client.post(
        run.workload.path(), run.workload.body(static_cast<std::uint64_t>(index)), run.now());
    const bool refused = record.outcome == Outcome::transport_error;
    run.keep(std::move(record));
    if (refused)
      co_await sleep_for(std::chrono::milliseconds(100));  // no busy loop against a dead port
  }
}

awaitable<void> one_arrival(Run& run, std::int64_t index, double due) {
  std::unique_ptr<Client> client;
  if (run.idle.empty()) {
    client = std::make_unique<Client>(co_await asio::this_coro::executor, run.target, run.begin);
  } else {
    client = std::move(run.idle.back());
    run.idle.pop_back();
  }
  run.keep(co_await client->post(run.workload.path(),
                                 run.workload.body(static_cast<std::uint64_t>(index)), due));
  run.idle.push_back(std::move(client));
}

// Open loop: requests are due at their times whether or not others have ended.
awaitable<void> arrivals(Run& run, TaskGroup& group) {
  Arrivals process(run.options.arrivals, run.options.rate, run.options.burstiness,
                   run.options.seed);
  double due = 0;
  while (run.may_send(due)) {
    const double wait = due - run.now();
    if (wait > 0)
      co_await sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(wait * 1e9)));
    const std::int64_t in_flight = run.progress.sent - run.progress.ended;
    if (in_flight >= run.options.concurrency) {
      co_await sleep_for(std::chrono::milliseconds(1));  // shows as send lag
      continue;
    }
    ++run.progress.sent;
    group.spawn(one_arrival(run, run.next++, due));
    due += process.next_gap();
  }
}

awaitable<void> report_progress(Run& run, const std::function<void(const Progress&)>& on_progress) {
  for (;;) {
    co_await sleep_for(std::chrono::seconds(1));
    run.progress.seconds = run.now();
    on_progress(run.progress);
  }
}

awaitable<void> drive(Run& run) {
  TaskGroup group(co_await asio::this_coro::executor);
  if (run.options.rate > 0) {
    group.spawn(arrivals(run, group));
  } else {
    for (int i = 0; i < run.options.concurrency; ++i) group.spawn(worker(run));
  }
  co_await group.wait();
}

}  // namespace

awaitable<RunResult> run_load(Target target, const Workload& workload, RunOptions options,
                              std::function<void(const Progress&)> on_progress) {
  if (options.warmup > 0) {
    RunOptions warmup{
        .concurrency = options.concurrency, .requests = options.warmup, .seed = options.seed};
    Run run{.target = target, .workload = workload, .options = warmup, .begin = Clock::now()};
    co_await drive(run);
  }
  Run run{
      .target = std::move(target), .workload = workload, .options = options, .begin = Clock::now()};
  run.next = options.warmup;
  if (run.options.requests != 0) run.options.requests += options.warmup;
  const double cpu_before = process_cpu_seconds();
  co_await first_of(drive(run), report_progress(run, on_progress));
  co_return RunResult{std::move(run.records), process_cpu_seconds() - cpu_before};
}

awaitable<std::string> first_model(Target target, std::chrono::seconds patience) {
  const auto deadline = Clock::now() + patience;
  std::string reply, problem;
  do {
    Client client(co_await asio::this_coro::executor, target, Clock::now());
    try {
      reply = co_await client.get("/v1/models");
      break;
    } catch (const std::exception& error) {
      problem = error.what();
    }
    co_await sleep_for(std::chrono::milliseconds(200));
  } while (Clock::now() < deadline);
  if (reply.empty()) {
    throw Failure(ErrorCode::unavailable,
                  "no server at " + target.host + ":" + target.port + ": " + problem);
  }
  simdjson::dom::parser parser;
  std::string_view id;
  if (parser.parse(reply).at_pointer("/data/0/id").get(id) != simdjson::SUCCESS) {
    throw Failure(ErrorCode::invalid_argument, "GET /v1/models lists no model");
  }
  co_return std::string(id);
}

}  // namespace quire::load
