#pragma once
// The KV cache of a model under a configuration: what start-up allocates and `quire plan` prints.

#include "base/result.h"
#include "engine/kv_cache/model_plan.h"
#include "model/config.h"
#include "model/model.h"

namespace quire {

// What the model leaves of a device with total_bytes for this configuration's largest step. A model
// loaded with LoadFormat::measure answers alike.
DeviceBudget device_budget(const EngineConfig& config, const ModelConfig& model_config,
                           const Model& model, std::int64_t total_bytes);

// device is not automatic.
Result<ModelPlan> plan_kv_cache(const EngineConfig& config, const ModelConfig& model,
                                DeviceKind device, const DeviceBudget& budget);

}  // namespace quire
