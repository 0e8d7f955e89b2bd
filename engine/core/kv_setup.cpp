#include "engine/core/kv_setup.h"

#include "engine/runner/model_runner.h"
#include "model/registry.h"

namespace quire {

namespace {

ModelMemory model_memory(const EngineConfig& config, const ModelConfig& model) {
  const DType dtype = config.model.dtype.value_or(model.dtype);
  const auto published = model.quant.kv_cache_dtype;
  ModelMemory memory{.layers = kv_specs(model, kv_spec_options(config, dtype, published)),
                     .model_max_len = model.max_position_embeddings,
                     .dtype = dtype,
                     .published_cache_dtype = published};
  if (model.mamba2.chunk_size > 0) memory.mamba_chunk_size = model.mamba2.chunk_size;
  return memory;
}

}  // namespace

DeviceBudget device_budget(const EngineConfig& config, const ModelConfig& model_config,
                           const Model& model, std::int64_t total_bytes) {
  const BatchLimits largest{.max_num_seqs = config.scheduler.max_num_seqs,
                            .max_num_batched_tokens = config.scheduler.max_num_batched_tokens};
  return {.total_bytes = total_bytes,
          .weight_bytes = static_cast<std::int64_t>(model.weight_bytes()),
          .workspace_bytes = static_cast<std::int64_t>(ModelRunner::scratch_bytes(model, largest)),
          .request_bytes = longest_request_bytes(config, model_memory(config, model_config))};
}

Result<ModelPlan> plan_kv_cache(const EngineConfig& config, const ModelConfig& model,
                                DeviceKind device, const DeviceBudget& budget) {
  return make_model_plan(config, model_memory(config, model), device,
                         kv_cache_budget(config, device, budget));
}

}  // namespace quire
