#include "engine/core/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "backend/measuring_device.h"
#include "base/log.h"
#include "engine/size_text.h"
#include "backend/measuring_ops.h"
#include "model/registry.h"

namespace quire {
namespace {

// The driver decides; an upper estimate that start-up compares with what a graph took.
constexpr std::int64_t kGraphNodeBytes = 16 << 10;
constexpr std::int64_t kLayerNodes = 24;  // launches of a layer, at most
constexpr std::int64_t kOtherNodes = 16;

std::int64_t signed_of(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

// Without its layers, which the measured model names.
ModelMemory model_memory(const EngineConfig& config, const ModelConfig& model) {
  ModelMemory memory{.layers = {},
                     .model_max_len = model.max_position_embeddings,
                     .dtype = config.model.dtype.value_or(model.dtype),
                     .published_cache_dtype = model.quant.kv_cache_dtype};
  if (model.mamba2.chunk_size > 0) memory.mamba_chunk_size = model.mamba2.chunk_size;
  return memory;
}

// Shared by the phases of plan_engine.
struct Planning {
  const EngineConfig& config;
  const ModelConfig& model_config;
  const PlannedDevice& device;
  ModelMemory memory;
  MeasuringDevice loaded{device.is_host_memory};  // weights and scratch of the operators
  Buffer scratch = {};
  std::unique_ptr<Model> model = {};
  EnginePlan plan = {};
};

// What the engine takes beside weights and operators' scratch.
MemoryUses runtime_uses(const Planning& planning, const KvPlan& kv) {
  MeasuringDevice device(planning.device.is_host_memory);
  const auto ops = make_measuring_ops(planning.device.ops);
  KvMemory memory(device, kv);
  const ModelRunner runner(device, *ops, *planning.model, memory, kv,
                           runner_options(planning.config, kv, planning.plan.graphs));
  return device.ledger().uses();
}

MemoryUses all_uses(Planning& planning, const KvPlan& kv) {
  MemoryUses uses = planning.loaded.ledger().uses();
  uses += runtime_uses(planning, kv);
  const auto sizes = static_cast<std::int64_t>(planning.plan.graphs.sizes.size());
  uses[MemoryPurpose::graphs].device = static_cast<std::size_t>(
      sizes * kGraphNodeBytes * (kLayerNodes * planning.model_config.num_layers + kOtherNodes));
  return uses;
}

std::int64_t device_total(const EnginePlan& plan) {
  return signed_of(plan.uses.total().device) + plan.mapped_bytes;
}

// What one request of max_model_len and the null block take.
std::optional<std::int64_t> least_cache_bytes(const Planning& planning) {
  constexpr std::int64_t kPlenty = std::int64_t{1} << 50;
  const auto plan =
      make_model_plan(planning.config, planning.memory, planning.device.kind, kPlenty);
  if (plan.has_error()) return std::nullopt;
  const WorkerKvPlan& worker = plan->kv.workers.front();
  return (worker.needed_blocks + 1) * signed_of(worker.pool_bytes_per_block);
}

// By how much the device's share is too small, and what of the rest can be made smaller.
std::string shortfall(const Planning& planning, std::int64_t other_bytes) {
  const EnginePlan& plan = planning.plan;
  const auto least = least_cache_bytes(planning);
  const bool is_share = plan.kv_cache_bytes == plan.allowed_bytes - other_bytes;
  if (!least || !is_share || *least <= plan.kv_cache_bytes) return "";
  const double share = std::ceil(100.0 * static_cast<double>(other_bytes + *least) /
                                 static_cast<double>(plan.device_bytes)) /
                       100;
  const std::string more =
      share <= 1 ? fmt::format("--gpu-memory-utilization {:.2f}, or ", share) : "";
  return fmt::format(
      ". Everything but the cache takes {} of the {} that the engine may use: {} are missing. What "
      "else works: {}less by --max-num-batched-tokens, --max-num-seqs or --max-model-len",
      bytes_text(other_bytes), bytes_text(plan.allowed_bytes),
      bytes_text(*least - plan.kv_cache_bytes), more);
}

void plan_cache(Planning& planning, const KvPlan& without_blocks) {
  EnginePlan& plan = planning.plan;
  plan.uses = all_uses(planning, without_blocks);
  const DeviceBudget budget{
      .total_bytes = plan.device_bytes,
      .other_bytes = device_total(plan),
      .request_bytes = longest_request_bytes(planning.config, planning.memory)};
  plan.kv_cache_bytes = kv_cache_budget(planning.config, planning.device.kind, budget);
  plan.model =
      make_model_plan(planning.config, planning.memory, planning.device.kind, plan.kv_cache_bytes);
  if (plan.model.has_error()) {
    Error error = plan.model.error();
    error.detail += shortfall(planning, budget.other_bytes);
    plan.model = std::move(error);
    return;
  }
  plan.uses = all_uses(planning, plan.model->kv);
}

// The cache may have been given a size of its own, and other programs may use the device.
Result<void> check_fits(const EnginePlan& plan, const PlannedDevice& device) {
  const std::int64_t needed = device_total(plan);
  const std::int64_t there =
      device.available_bytes > 0 ? device.available_bytes : device.total_bytes;
  if (needed <= there) return {};
  const std::int64_t cache = signed_of(plan.uses[MemoryPurpose::kv_cache].device);
  const std::int64_t rest = needed - cache;
  const std::string cache_flags =
      there > rest ? fmt::format("--kv-cache-memory-bytes {} or a lower --gpu-memory-utilization, ",
                                 there - rest)
                   : "";
  return Error{ErrorCode::unavailable,
               fmt::format("{} are planned, {} of them for the KV cache; of the device's {} there "
                           "are {} to be had, {} too few. What works: {}less by --max-num-seqs, "
                           "--max-num-batched-tokens or --max-model-len",
                           bytes_text(needed), bytes_text(cache), bytes_text(device.total_bytes),
                           bytes_text(there), bytes_text(needed - there), cache_flags),
               "no_memory"};
}

Result<void> choose_graphs(Planning& planning, const KvPlan& kv) {
  if (planning.device.is_host_memory) return {};
  auto graphs = capture_sizes(planning.config.graphs, planning.config.scheduler.max_num_seqs,
                              planning.device.ops, kv.groups());
  if (graphs.has_error()) return graphs.error();
  planning.plan.graphs = std::move(*graphs);
  return {};
}

void measure_model(Planning& planning) {
  const EngineConfig& config = planning.config;
  const std::int64_t length = std::max<std::int64_t>(config.model.max_model_len, 0);
  planning.model =
      load_model(planning.model_config, config.model.path, planning.loaded, planning.device.ops,
                 {.dtype = planning.memory.dtype,
                  .load_format = config.model.load_format,
                  .quantization = config.model.quantization,
                  .max_model_len = static_cast<int>(length),
                  .measure = true});
  planning.memory.layers = planning.model->kv_specs(
      kv_spec_options(config, planning.memory.dtype, planning.memory.published_cache_dtype));
  planning.plan.layers = planning.memory.layers;
  if (const std::size_t bytes = planning.device.ops.scratch_bytes(); bytes > 0)
    planning.scratch = planning.loaded.allocate(bytes, MemoryPurpose::kernels);
  planning.plan.mapped_bytes = signed_of(planning.model->mapped_bytes());
  planning.plan.uses = planning.loaded.ledger().uses();
}

}  // namespace

PlannedDevice planned_device(DeviceKind kind, Device& device, const OpsTraits& ops) {
  const MemoryInfo memory = device.memory();
  const bool is_host = device.is_host_memory();
  // The host gives what it has to whoever asks; caches make room.
  const std::size_t own = device.ledger().uses().total().device;
  return {.kind = kind,
          .is_host_memory = is_host,
          .total_bytes = signed_of(memory.total),
          .available_bytes = is_host ? 0 : signed_of(memory.available + own),
          .ops = ops};
}

EnginePlan plan_engine(const EngineConfig& config, const ModelConfig& model_config,
                       const PlannedDevice& device) {
  Planning planning{.config = config,
                    .model_config = model_config,
                    .device = device,
                    .memory = model_memory(config, model_config)};
  EnginePlan& plan = planning.plan;
  plan.device_bytes = device.total_bytes;
  plan.allowed_bytes = allowed_bytes(config, device.kind, device.total_bytes);
  // Before anything as long as the context is made.
  if (const auto length = check_max_model_len(config, planning.memory.model_max_len);
      length.has_error()) {
    plan.model = length.error();
    return std::move(plan);
  }
  measure_model(planning);
  const auto without_blocks = plan_without_blocks(config, planning.memory, device.kind);
  if (without_blocks.has_error()) {
    plan.model = without_blocks.error();
  } else if (auto chosen = choose_graphs(planning, *without_blocks); chosen.has_error()) {
    plan.model = chosen.error();
  } else {
    plan_cache(planning, *without_blocks);
  }
  if (plan.model.has_error()) return std::move(plan);
  const std::vector<std::string> notes = planning.model->notes();
  plan.model->notes.insert(plan.model->notes.end(), notes.begin(), notes.end());
  if (auto fits = check_fits(plan, device); fits.has_error()) plan.model = fits.error();
  return std::move(plan);
}

RunnerOptions runner_options(const EngineConfig& config, const KvPlan& plan,
                             const CaptureSizes& graphs) {
  return {.limits = {.max_num_seqs = config.scheduler.max_num_seqs,
                     .max_num_batched_tokens = config.scheduler.max_num_batched_tokens,
                     .max_model_len = static_cast<int>(plan.max_model_len)},
          .seed = config.model.seed,
          .graph_sizes = graphs.sizes};
}

void check_allocated(const MemoryUses& planned, const MemoryUses& allocated) {
  for (std::size_t i = 0; i < kNumMemoryPurposes; ++i) {
    const auto purpose = static_cast<MemoryPurpose>(i);
    const MemoryUse& plan = planned[purpose];
    const MemoryUse& is = allocated[purpose];
    if (plan == is) continue;
    if (purpose != MemoryPurpose::graphs) {
      throw Failure(
          ErrorCode::internal,
          fmt::format("memory for {}: {} bytes planned and {} pinned, {} allocated and {} "
                      "pinned",
                      name_of(purpose), plan.device, plan.pinned, is.device, is.pinned));
    }
    if (is.device > plan.device)
      log::warn("engine.graph_memory", {{"planned", plan.device}, {"allocated", is.device}});
  }
}

}  // namespace quire
