#pragma once
// One load run: closed loop (so many at a time) or open loop (arrivals at their own times), bounded in
// count and time.

#include <functional>
#include <vector>

#include "base/async.h"
#include "load/client.h"
#include "load/workload.h"

namespace quire::load {

struct RunOptions {
  int concurrency = 1;          // closed loop; with a rate: the most connections at a time
  double rate = 0;              // requests/s, 0: closed loop
  ArrivalKind arrivals = ArrivalKind::poisson;
  double burstiness = 1;        // of gamma arrivals
  std::int64_t requests = 100;  // 0: until the time is over
  double seconds = 0;           // no new request after that; 0: until the count is reached
  std::int64_t warmup = 0;      // requests sent first and not counted
  std::uint64_t seed = 0;
};

struct Progress {
  std::int64_t sent = 0;
  std::int64_t ended = 0;
  std::int64_t failed = 0;
  std::int64_t output_tokens = 0;
  double seconds = 0;
};

struct RunResult {
  std::vector<Record> records;
  double cpu_seconds = 0;  // of this process, while the records were made
};

awaitable<RunResult> run_load(Target target, const Workload& workload, RunOptions options,
                              std::function<void(const Progress&)> on_progress);

// The first model that GET /v1/models lists; waits up to `patience` for a server that is still
// starting.
awaitable<std::string> first_model(Target target, std::chrono::seconds patience);

}  // namespace quire::load
