#pragma once
// The plan: what every layer must remember and how many bytes there are → groups, blocks, tensors,
// max_model_len. A pure function and the only owner of these numbers: the allocator executes it,
// the handshake carries it, /metrics, logs and `quire plan` print it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/kv_plan/block_size.h"
#include "engine/kv_plan/groups.h"
#include "engine/kv_plan/plan_error.h"
#include "engine/kv_plan/pool_layout.h"
#include "model/kv_spec.h"

namespace quire {

// One worker process: a tensor-parallel rank of a pipeline stage.
struct WorkerKvInput {
  std::vector<LayerKvSpec> layers = {};  // in layer order; groups follow the first appearance
  std::int64_t available_bytes = 0;
  std::int64_t most_bytes = std::int64_t{1} << 62;  // that any advice may ask for
};

struct KvPlanInput {
  std::vector<WorkerKvInput> workers = {};
  std::int64_t max_model_len = 0;  // with auto_fit: the most that the model allows
  bool auto_fit = false;
  std::optional<std::int64_t> num_gpu_blocks_override;
  std::int64_t max_num_batched_tokens = 0;
  int sharers = 1;  // of what CacheConfig::kv_cache_memory_bytes says: each has as much of it
  bool enable_prefix_caching = true;
  bool hybrid_manager = true;
  StateCacheMode state_cache_mode = StateCacheMode::none;
  int cache_block_size = 16;  // tokens; the attention block size
  std::optional<int> hash_block_size;
  int decode_context_parallel = 1;
  int prefill_context_parallel = 1;
  bool use_eagle = false;
  bool kv_connector = false;
  KernelSizes attention_kernels = {KernelSize{}};  // what the backend's attention reads
  KernelSizes latent_kernels = {KernelSize{}};     // what its MLA reads
};

struct WorkerKvPlan {
  std::vector<KvGroup> groups;  // same number and order on every worker
  std::vector<KvTensor> tensors;
  std::size_t pool_bytes_per_block = 0;  // of one block id across all tensors
  std::int64_t needed_blocks = 0;        // by one request of max_model_len
  std::int64_t needed_bytes = 0;
  std::int64_t available_bytes = 0;  // as given, before an override
  std::int64_t most_bytes = 0;       // as given

  std::size_t total_bytes() const;
};

struct KvPlan {
  std::int64_t num_blocks = 0;  // on every worker; block 0 is the null block
  std::int64_t max_model_len = 0;
  std::vector<WorkerKvPlan> workers = {};

  // For scheduler, handshake and /metrics. Sizes in tokens.
  int block_size = 0;            // reported: smallest over groups that keep attention's tokens
  int scheduler_block_size = 0;  // prefix hits are multiples of it
  int hash_block_size = 0;
  double max_concurrency = 0;  // requests of max_model_len
  std::int64_t kv_cache_size_tokens = 0;
  std::int64_t largest_request_tokens = 0;  // of one request alone in the pool; ≥ max_model_len

  // For tokens; the null block, which fit_kv_groups() has counted, is not.
  std::int64_t usable_blocks() const { return num_blocks - 1; }
  const std::vector<KvGroup>& groups() const { return workers.front().groups; }
};

// The groups of that plan: they do not depend on how much memory there is.
PlanResult<std::vector<KvGroup>> make_kv_groups(const KvPlanInput& input);
// The plan for these groups, which are the input's, in the memory of its workers.
PlanResult<KvPlan> fit_kv_groups(const KvPlanInput& input, const std::vector<KvGroup>& groups);
// What one request of max_model_len and the null block take of the first worker.
std::int64_t least_cache_bytes(const KvPlanInput& input, const std::vector<KvGroup>& groups);
PlanResult<KvPlan> make_kv_plan(const KvPlanInput& input);  // groups and fit

}  // namespace quire
