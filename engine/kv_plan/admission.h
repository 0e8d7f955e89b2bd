#pragma once
// What make_kv_plan's phases share, and its decision whether one request of max_model_len fits.

#include <cstdint>
#include <vector>

#include "engine/kv_plan/plan.h"

namespace quire {

struct Planning {
  const KvPlanInput& input;
  std::vector<KvGroup> groups;  // of the whole model
  std::vector<WorkerKvPlan> workers = {};
  std::int64_t num_blocks = 1;  // that every worker can hold; 1: no layer remembers anything

  KvLimits limits(std::int64_t max_model_len) const;
  std::int64_t needed_blocks(std::int64_t max_model_len) const;  // by one request
  // The same with the null block, which holds no tokens.
  std::int64_t blocks_for(std::int64_t max_model_len) const;
  // The longest request that `usable` blocks hold, at most `cap` tokens; 0: none.
  std::int64_t longest_request(std::int64_t usable, std::int64_t cap) const;
  // What the worker's own memory, or the override, holds. The worker has layers.
  std::int64_t own_blocks(const WorkerKvPlan& worker) const;
};

inline std::int64_t bytes_for(const WorkerKvPlan& worker, std::int64_t num_blocks) {
  return num_blocks * static_cast<std::int64_t>(worker.pool_bytes_per_block);
}

// max_model_len, as asked or as auto-fit finds it, once it is known to fit beside the null block.
PlanResult<std::int64_t> admit(const Planning& planning);

}  // namespace quire
