#include "engine/core/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/measuring_ops.h"
#include "base/log.h"
#include "engine/core/plan_phases.h"
#include "engine/kv_offload/kv_offload.h"
#include "engine/runner/rank_runner.h"
#include "model/registry.h"

namespace quire {
namespace {

// The driver decides; an upper estimate that start-up compares with what a graph took.
constexpr std::int64_t kGraphNodeBytes = 16 << 10;
constexpr std::int64_t kLayerNodes = 24, kOtherNodes = 16;  // launches of a layer, at most; others

StateChunk state_chunk(const ModelConfig& model, DType dtype, const OpsTraits& ops) {
  const DeltaNetConfig& net = model.delta_net;
  const Mamba2Config& scan = model.mamba2;
  if (net.num_value_heads > 0)
    return ops.state_chunk({dtype, net.key_head_dim, net.value_head_dim});
  if (scan.num_heads > 0) return ops.state_chunk({dtype, scan.state_size, scan.head_dim});
  return {};
}

// Without its layers, which the measured model names.
ModelMemory model_memory(const EngineConfig& config, const ModelConfig& model,
                         const OpsTraits& ops) {
  ModelMemory memory{.layers = {},
                     .model_max_len = model.longest_context,
                     .default_max_len = model.max_position_embeddings,
                     .dtype = config.model.dtype.value_or(model.dtype),
                     .published_cache_dtype = model.quant.kv_cache_dtype};
  if (model.mamba2.chunk_size > 0) memory.mamba_chunk_size = model.mamba2.chunk_size;
  memory.state_chunk = state_chunk(model, memory.dtype, ops).tokens;
  return memory;
}

// What the engine takes beside weights and operators' scratch.
MemoryUses runtime_uses(const Planning& planning, const KvPlan& kv) {
  MeasuringDevice device(planning.device.is_host_memory);
  const auto ops = make_measuring_ops(planning.device.ops);
  KvMemory memory(device, kv);
  if (planning.device.rank > 0) {
    const RankRunner runner(device, *ops, *planning.model, memory, kv,
                            runner_options(planning.config, kv, planning.plan.graphs));
    return device.ledger().uses();
  }
  const ModelRunner runner(
      device, *ops, *planning.model, memory, kv,
      runner_options(planning.config, kv, planning.plan.graphs, planning.pooling),
      planning.draft.model.get());
  const TransferBuffers travelling =
      transfer_buffers(planning.config, planning.plan.whole_layers,
                       static_cast<std::int64_t>(kv.max_model_len), device);
  const Buffer offloaded =
      offload_memory(planning.config.kv_offload, offload_slot_bytes(planning.config, kv), device);
  return device.ledger().uses();
}

MemoryUses all_uses(Planning& planning, const KvPlan& kv) {
  MemoryUses uses = planning.loaded.ledger().uses();
  uses += runtime_uses(planning, kv);
  if (planning.config.parallel.tensor_parallel_size > 1)
    uses[MemoryPurpose::kernels].device += planning.device.ops.collectives_bytes();
  const CaptureSizes& graphs = planning.plan.graphs;
  const auto nodes = [](std::size_t layers) {
    return kLayerNodes * static_cast<std::int64_t>(layers) + kOtherNodes;
  };
  std::int64_t num_nodes =
      static_cast<std::int64_t>(graphs.sizes.size() + graphs.draft_sizes.size() +
                                graphs.mixed_sizes.size()) *
      nodes(static_cast<std::size_t>(planning.model_config.num_layers));
  const int num_drafts = planning.config.speculative.num_speculative_tokens;
  const auto passes = [&](const std::vector<int>& sizes, int count) {
    return static_cast<std::int64_t>(sizes.size()) * count *
           nodes(planning.draft.model->kv_specs({}).size());
  };
  if (graphs.drafting) num_nodes += passes(graphs.sizes, num_drafts - 1);
  if (graphs.all_drafting) num_nodes += passes(graphs.draft_sizes, num_drafts);
  uses[MemoryPurpose::graphs].device = static_cast<std::size_t>(kGraphNodeBytes * num_nodes);
  return uses;
}

// Whether steps with prompts may gain by graphs where nobody names their sizes. A device that reads
// 8 TB/s takes a millisecond for such weights, in which a host queues the next step; experts read
// more of them for tokens that fill up a step; and ranks would have to time them together.
bool may_gain(Planning& planning) {
  constexpr std::size_t kMostWeights = std::size_t{8} << 30;
  return planning.config.parallel.tensor_parallel_size == 1 &&
         planning.model_config.moe.num_experts == 0 &&
         planning.loaded.ledger().uses()[MemoryPurpose::weights].device <= kMostWeights;
}

Result<void> choose_graphs(Planning& planning, const SizedModel& sized) {
  if (planning.device.is_host_memory) return {};
  const SchedulerConfig& scheduler = planning.config.scheduler;
  const auto longest = static_cast<int>(planning.plan.loaded_len);
  auto graphs = capture_sizes(planning.config.graphs,
                              {.max_num_seqs = scheduler.max_num_seqs,
                               .max_tokens = std::min(scheduler.max_num_batched_tokens, longest)},
                              planning.device.ops, sized.groups);
  if (graphs.has_error()) return graphs.error();
  planning.plan.graphs = std::move(*graphs);
  CaptureSizes& chosen = planning.plan.graphs;
  if (chosen.keeps_faster && !may_gain(planning)) chosen.mixed_sizes.clear();
  if (planning.pooling.pools()) {
    chosen.sizes.clear();
    if (chosen.count() == 0 && chosen.why_none.empty())
      chosen.why_none = "a pooling model does not decode";
    return {};
  }
  chosen.draft_sizes = draft_capture_sizes(
      chosen.sizes, planning.config.speculative.num_speculative_tokens,
      planning.config.scheduler.max_num_batched_tokens, planning.device.ops, sized.groups);
  const SpeculativeConfig& drafts = planning.config.speculative;
  // Beside other ranks the host knows what held before it queues a draft model's passes.
  const bool is_captured = planning.device.rank == 0 && drafts.uses_draft_model() &&
                           drafts.draft_sampling == DraftSampling::greedy;
  chosen.drafting = is_captured && !chosen.sizes.empty() && drafts.num_speculative_tokens > 1;
  chosen.all_drafting = is_captured && planning.config.parallel.tensor_parallel_size == 1;
  return {};
}

std::int64_t mapped_bytes(const LoadedDraft& draft) {
  return signed_of(draft.model->mapped_bytes() + (draft.ends ? draft.ends->mapped_bytes() : 0));
}

// As an engine without ranks has them; where nothing is transferred, as this one has.
std::vector<LayerKvSpec> whole_layers(const Planning& planning, LoadOptions options) {
  const EngineConfig& config = planning.config;
  if (options.shard.whole() || config.kv_transfer.role == KvRole::none) return planning.plan.layers;
  options.shard = {};
  MeasuringDevice device(planning.device.is_host_memory);
  const auto model =
      load_model(planning.model_config, config.model.path, device, planning.device.ops, options);
  std::vector<LayerKvSpec> layers = model->kv_specs(
      kv_spec_options(config, planning.memory.dtype, planning.memory.published_cache_dtype));
  // A draft model is whole.
  const auto drafts = planning.plan.layers.end() - planning.plan.num_draft_layers;
  layers.insert(layers.end(), drafts, planning.plan.layers.end());
  return layers;
}

void measure_model(Planning& planning) {
  const EngineConfig& config = planning.config;
  EnginePlan& plan = planning.plan;
  plan.loaded_len = longest_context(config, planning.memory);
  const KvSpecOptions cache =
      kv_spec_options(config, planning.memory.dtype, planning.memory.published_cache_dtype);
  const LoadOptions options{
      .dtype = planning.memory.dtype,
      .load_format = config.model.load_format,
      .quantization = config.model.quantization,
      .max_model_len = static_cast<int>(plan.loaded_len),
      .cache_dtype = cache.cache_dtype,
      .shard = {.rank = planning.device.rank, .size = config.parallel.tensor_parallel_size},
      .same_bits = config.deterministic,
      .measure = true};
  planning.model = load_model(planning.model_config, config.model.path, planning.loaded,
                              planning.device.ops, options);
  // Other ranks have the blocks of its layers, so that all tables are the same.
  planning.draft = make_draft(config, planning.model_config, *planning.model,
                              planning.device.rank == 0 ? planning.loaded : planning.elsewhere,
                              planning.device.ops, options);
  if (const std::size_t bytes = planning.device.ops.scratch_bytes(); bytes > 0)
    planning.scratch = planning.loaded.allocate(bytes, MemoryPurpose::kernels);
  plan.layers = planning.model->kv_specs(cache);
  plan.mapped_bytes = signed_of(planning.model->mapped_bytes());
  if (planning.draft.model != nullptr) {
    const auto layers = planning.draft.model->kv_specs(cache);
    plan.num_draft_layers = static_cast<int>(layers.size());
    plan.layers.insert(plan.layers.end(), layers.begin(), layers.end());
    if (planning.device.rank == 0) plan.mapped_bytes += mapped_bytes(planning.draft);
  }
  plan.whole_layers = whole_layers(planning, options);
  planning.memory.layers = plan.layers;
  plan.uses = planning.loaded.ledger().uses();
}

Result<ModelPlan> fit_cache(Planning& planning, const SizedModel& sized) {
  EnginePlan& plan = planning.plan;
  plan.uses = all_uses(planning, sized.without_blocks());
  if (auto room = check_weights(planning, sized); room.has_error()) return room.error();
  const DeviceBudget budget{
      .total_bytes = plan.device_bytes,
      .other_bytes = device_total(planning),
      .request_bytes = longest_request_bytes(planning.config, planning.memory)};
  plan.kv_cache_bytes =
      plan.layers.empty() ? 0
                          : std::max<std::int64_t>(
                                0, kv_cache_budget(planning.config, planning.device.kind, budget));
  auto fitted = fit(planning.config, sized,
                    {.available_bytes = plan.kv_cache_bytes,
                     .most_bytes = plan.device_bytes - budget.other_bytes});
  if (fitted.has_error()) {
    Error error = fitted.error();
    error.detail += shortfall(planning, sized, budget.other_bytes);
    return error;
  }
  plan.uses = all_uses(planning, fitted->kv);
  if (auto fits = check_fits(planning, sized); fits.has_error()) return fits.error();
  return fitted;
}

Result<ModelPlan> plan_model(Planning& planning) {
  if (auto length = check_max_model_len(planning.config, planning.memory.model_max_len);
      length.has_error())
    return length.error();
  measure_model(planning);
  if (auto drafts =
          check_drafts(planning.config, planning.memory, planning.model_config.architecture);
      drafts.has_error())
    return drafts.error();
  const auto sized = size_model(planning.config, planning.memory, planning.device.kind);
  if (sized.has_error()) return sized.error();
  if (auto chosen = choose_graphs(planning, *sized); chosen.has_error()) return chosen.error();
  auto model = fit_cache(planning, *sized);
  if (model.has_error()) return model;
  if (const StateChunk chunk =
          state_chunk(planning.model_config, planning.memory.dtype, planning.device.ops);
      !chunk.wants.empty())
    model->notes.push_back(fmt::format(
        "the recurrent layers take prompts token by token: chunks want {}", chunk.wants));
  const std::vector<std::string> notes = planning.model->notes();
  model->notes.insert(model->notes.end(), notes.begin(), notes.end());
  if (planning.device.rank > 0) return model;
  const auto of_transfer =
      notes_of_transfer(planning.config.kv_transfer, planning.plan.whole_layers, model->kv);
  model->notes.insert(model->notes.end(), of_transfer.begin(), of_transfer.end());
  return model;
}

}  // namespace

PlannedDevice planned_device(DeviceKind kind, Device& device, const OpsTraits& ops) {
  const MemoryInfo memory = device.memory();
  const std::size_t own = device.ledger().uses().total().device;
  return {.kind = kind,
          .is_host_memory = device.is_host_memory(),
          .total_bytes = signed_of(memory.total),
          .available_bytes = signed_of(memory.available + own),
          .ops = ops};
}

EnginePlan plan_engine(const EngineConfig& config, const ModelConfig& model_config,
                       const PlannedDevice& device, const PoolingConfig& pooling) {
  Planning planning{.config = config,
                    .model_config = model_config,
                    .device = device,
                    .pooling = pooling,
                    .memory = model_memory(config, model_config, device.ops)};
  if (device.is_host_memory) planning.engines_on_device = config.parallel.data_parallel_size;
  planning.sharers = device.is_host_memory ? num_sharers(config.parallel) : 1;
  EnginePlan& plan = planning.plan;
  plan.device_bytes = device.total_bytes / planning.sharers;
  plan.allowed_bytes = allowed_bytes(config, device.kind, plan.device_bytes);
  plan.model = plan_model(planning);
  const bool found = plan.model.has_value() && plan.model->kv.max_model_len < plan.loaded_len;
  if (!found) return std::move(plan);
  // Auto-fit chose a shorter context: once more, with tables of that length.
  EngineConfig fitted = config;
  fitted.model.max_model_len = plan.model->kv.max_model_len;
  return plan_engine(fitted, model_config, device, pooling);
}

int threads_of_engine(const EngineConfig& config, int cores) {
  if (config.cpu_threads > 0) return config.cpu_threads;
  return std::max(1, cores / num_sharers(config.parallel));
}

}  // namespace quire
