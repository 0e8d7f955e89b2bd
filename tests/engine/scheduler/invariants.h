#pragma once
// What must hold of scheduler and KV cache after every step, whatever happened before.

#include <vector>

#include "engine/scheduler/scheduler.h"

namespace quire::test {

// ids: every request that was ever added. Throws, saying what does not hold.
void check_invariants(const Scheduler& scheduler, const KvCacheManager& kv,
                      const std::vector<RequestId>& ids);

void check_plan(const BatchPlan& plan, const SchedulerOptions& options);
// Prompts end where chunks do, but for one that finds no room for a chunk.
void check_chunks(const BatchPlan& plan, const StateSteps& states);

}  // namespace quire::test
