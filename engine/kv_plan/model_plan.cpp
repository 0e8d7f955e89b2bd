#include "engine/kv_plan/model_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/size_text.h"

namespace quire {
namespace {

// Of main memory, where nothing says how much: enough for 32k tokens of an 8B model, and no more
// than this many requests of full length can use, since all of it is taken at start-up.
constexpr std::int64_t kDefaultCpuCacheBytes = std::int64_t{4} << 30;
constexpr std::int64_t kDefaultCpuRequests = 16;

Error refuse(std::string field, std::string why) {
  return {ErrorCode::invalid_argument, field + " " + why, field};
}

// A state that is never cached has one block per request, whatever the length it fits.
KvPlanInput with_state_blocks_of(KvPlanInput input, std::int64_t max_model_len) {
  input.auto_fit = false;
  input.max_model_len = max_model_len;
  for (WorkerKvInput& worker : input.workers)
    for (LayerKvSpec& layer : worker.layers)
      if (layer.spec.kind == KvKind::mamba) layer.spec.block_size = static_cast<int>(max_model_len);
  return input;
}

PlanResult<KvPlan> fit_kv(const SizedModel& model, const CacheMemory& memory) {
  KvPlanInput input = model.input;
  for (WorkerKvInput& worker : input.workers) {
    worker.available_bytes = memory.available_bytes;
    worker.most_bytes = memory.most_bytes;
  }
  auto plan = fit_kv_groups(input, model.groups);
  if (plan.has_error() || plan->max_model_len == input.max_model_len || !model.has_states ||
      model.state_cache_mode != StateCacheMode::none)
    return plan;
  return make_kv_plan(with_state_blocks_of(std::move(input), plan->max_model_len));
}

std::optional<StateCheckpoint> checkpoint_of(const SizedModel& model, const KvPlan& plan) {
  if (!model.has_states || model.state_cache_mode == StateCacheMode::none) return std::nullopt;
  const WorkerKvPlan& worker = plan.workers.front();
  StateCheckpoint checkpoint;
  for (const KvGroup& group : plan.groups())
    checkpoint.num_blocks += group.spec.kind == KvKind::mamba;
  checkpoint.bytes = checkpoint.num_blocks * static_cast<std::int64_t>(worker.pool_bytes_per_block);
  checkpoint.num_in_pool = plan.usable_blocks() / checkpoint.num_blocks;
  checkpoint.num_beside_request =
      (plan.usable_blocks() - worker.needed_blocks) / checkpoint.num_blocks;
  return checkpoint;
}

// A hit is whole blocks of a prompt, of which a token is left over, as is room for the answer's.
// What to say where there can be none.
std::string never_hits(const EngineConfig& config, const KvPlan& plan) {
  if (!config.cache.enable_prefix_caching || plan.groups().empty()) return {};
  if (plan.scheduler_block_size + 2 <= plan.max_model_len) return {};
  return fmt::format(
      "prefix caching can never hit: a block holds {} tokens, and the longest prompt "
      "has {} with one to compute; use a ModelOptions::max_model_len of at least {}, or "
      "CacheConfig::enable_prefix_caching=false",
      plan.scheduler_block_size, plan.max_model_len - 1, plan.scheduler_block_size + 2);
}

Result<void> check_override(const EngineConfig& config, const KvPlan& plan,
                            std::int64_t available_bytes) {
  const auto total = static_cast<std::int64_t>(plan.workers.front().total_bytes());
  if (!config.cache.num_gpu_blocks_override || total <= available_bytes) return {};
  const auto block = static_cast<std::int64_t>(plan.workers.front().pool_bytes_per_block);
  return refuse(
      "CacheConfig::num_gpu_blocks_override",
      fmt::format("{} needs {}, there is {}; use at most {}", plan.num_blocks, bytes_text(total),
                  bytes_text(available_bytes), available_bytes / block));
}

// Blocks of one size, or of states, leave nothing to choose.
Result<void> check_hash_block(const EngineConfig& config, const KvPlan& plan) {
  const auto asked = config.cache.hash_block_size;
  if (!asked || *asked == plan.hash_block_size) return {};
  return refuse("CacheConfig::hash_block_size",
                fmt::format("{} has no effect: this model's prefixes are hashed in steps of {} "
                            "tokens; remove it",
                            *asked, plan.hash_block_size));
}

Result<void> check_steps(const EngineConfig& config, const SizedModel& model, const KvPlan& plan) {
  if (!config.scheduler.enable_chunked_prefill &&
      config.scheduler.max_num_batched_tokens < plan.max_model_len)
    return refuse(
        "SchedulerConfig::enable_chunked_prefill=false",
        fmt::format(
            "computes a prompt in one step, so SchedulerConfig::max_num_batched_tokens must be "
            "at least max_model_len ({}), not {}",
            plan.max_model_len, config.scheduler.max_num_batched_tokens));
  return validate_block_size(
      plan.block_size,
      {.mode = model.state_cache_mode,
       .max_num_batched_tokens = config.scheduler.max_num_batched_tokens,
       .long_prefill_token_threshold = config.scheduler.long_prefill_token_threshold});
}

}  // namespace

KvPlan SizedModel::without_blocks() const {
  KvPlan plan{.max_model_len = input.max_model_len};
  plan.workers.emplace_back().groups = groups;
  return plan;
}

std::int64_t SizedModel::least_cache_bytes() const {
  return quire::least_cache_bytes(input, groups);
}

std::int64_t longest_request_bytes(const EngineConfig& config, const ModelMemory& model) {
  constexpr std::int64_t kStates = 4;  // running, its checkpoints, what alignment pads
  constexpr std::int64_t kTokens = 16;  // of a block at least, which is whole
  const std::int64_t tokens = (longest_context(config, model) + kTokens - 1) / kTokens * kTokens;
  std::int64_t bytes = 0;
  for (const LayerKvSpec& layer : model.layers)
    bytes += static_cast<std::int64_t>(page_bytes(layer.spec)) *
             (is_attention(layer.spec.kind) ? tokens : kStates);
  return bytes;
}

int num_sharers(const ParallelConfig& parallel) {
  return parallel.data_parallel_size * parallel.tensor_parallel_size;
}

std::int64_t allowed_bytes(const EngineConfig& config, DeviceKind device,
                           std::int64_t total_bytes) {
  const auto share = config.cache.gpu_memory_utilization;
  if (config.cache.kv_cache_memory_bytes > 0 || (device == DeviceKind::cpu && !share))
    return total_bytes;
  return static_cast<std::int64_t>(share.value_or(kDefaultUtilization) *
                                   static_cast<double>(total_bytes));
}

std::int64_t kv_cache_budget(const EngineConfig& config, DeviceKind device,
                             const DeviceBudget& budget) {
  const CacheConfig& cache = config.cache;
  const bool is_cpu = device == DeviceKind::cpu;
  if (cache.kv_cache_memory_bytes > 0)
    return cache.kv_cache_memory_bytes / (is_cpu ? num_sharers(config.parallel) : 1);
  const std::int64_t left = allowed_bytes(config, device, budget.total_bytes) - budget.other_bytes;
  if (!is_cpu || cache.gpu_memory_utilization || cache.num_gpu_blocks_override) return left;
  const std::int64_t most = std::min(
      kDefaultCpuCacheBytes / config.parallel.tensor_parallel_size, budget.total_bytes / 4);
  return budget.request_bytes > 0 ? std::min(most, kDefaultCpuRequests * budget.request_bytes)
                                  : most;
}

Result<ModelPlan> fit(const EngineConfig& config, const SizedModel& model,
                      const CacheMemory& memory) {
  auto kv = fit_kv(model, memory);
  if (kv.has_error()) return to_error(kv.error());
  for (const auto& checked : {check_override(config, *kv, memory.available_bytes),
                              check_hash_block(config, *kv), check_steps(config, model, *kv)})
    if (checked.has_error()) return checked.error();
  ModelPlan plan{.kv = std::move(*kv),
                 .state_chunk = model.state_chunk,
                 .state_cache_mode = model.state_cache_mode,
                 .cache_dtype = model.cache_dtype,
                 .state_padding_percent = model.state_padding_percent,
                 .notes = model.notes};
  if (const std::string reason = never_hits(config, plan.kv); !reason.empty()) {
    if (config.cache.mamba_cache_mode)
      return refuse("CacheConfig::mamba_cache_mode", "has no effect: " + reason);
    plan.notes.push_back(reason);
  }
  plan.checkpoint = checkpoint_of(model, plan.kv);
  return plan;
}

Result<ModelPlan> make_model_plan(const EngineConfig& config, const ModelMemory& model,
                                  DeviceKind device, const CacheMemory& memory) {
  const auto sized = size_model(config, model, device);
  if (sized.has_error()) return sized.error();
  return fit(config, *sized, memory);
}

}  // namespace quire
