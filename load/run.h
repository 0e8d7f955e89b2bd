#pragma once
// One load run: a closed loop (so many at a time) or an open one (arrivals at their own times),
// bounded in count and time.

#include <functional>
#include <vector>

#include "base/async.h"
#include "load/arrivals.h"
#include "load/client.h"
#include "load/workload.h"

namespace quire::load {

struct RunOptions {
  int concurrency = 1;  // closed loop; in an open one the most connections at a time
  // Rate 0 and no trace: a closed loop. An arrival begins a conversation; its later turns follow
  // when the answer is there and the time to think is over.
  ArrivalOptions arrivals = {};
  double trace_speed = 1;       // of the workload's trace: 2 is twice as fast
  double think_seconds = 0;     // between an answer and the next turn
  std::int64_t requests = 100;  // conversations; 0: until the time is over
  double seconds = 0;           // no new conversation after that; 0: until the count is reached
  std::int64_t warmup = 0;      // conversations sent first and not counted
  std::uint64_t seed = 0;
};

struct Progress {
  std::int64_t sent = 0;  // conversations begun
  std::int64_t ended = 0;
  std::int64_t failed = 0;  // requests
  std::int64_t output_tokens = 0;
  double seconds = 0;
};

struct RunResult {
  std::vector<Record> records;  // of every request, in the order of their ends
  double cpu_seconds = 0;       // of this process, while the records were made
  bool interrupted = false;     // by SIGINT or SIGTERM, before all was sent
};

// Conversations go to the targets in turn, all turns of one to the same.
awaitable<RunResult> run_load(std::vector<Target> targets, const Workload& workload,
                              RunOptions options, std::function<void(const Progress&)> on_progress);

// The first model that GET /v1/models lists; waits up to `patience` for a server that is still
// starting.
awaitable<std::string> first_model(Target target, std::chrono::seconds patience);

}  // namespace quire::load
