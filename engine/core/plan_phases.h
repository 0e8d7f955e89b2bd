#pragma once
// What the phases of plan_engine (engine/core/engine_plan.cpp) share, and the words in which a plan
// that does not fit is refused.

#include "backend/measuring_device.h"
#include "engine/core/engine_plan.h"
#include "engine/runner/model_runner.h"

namespace quire {

inline std::int64_t signed_of(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

struct Planning {
  const EngineConfig& config;
  const ModelConfig& model_config;
  const PlannedDevice& device;
  const PoolingConfig& pooling;
  ModelMemory memory;
  int engines_on_device = 1;
  int sharers = 1;                                   // of the device: engines, each with its ranks
  MeasuringDevice loaded{device.is_host_memory};     // weights and scratch of the operators
  MeasuringDevice elsewhere{device.is_host_memory};  // what rank 0 alone has
  Buffer scratch = {};
  std::unique_ptr<Model> model = {};
  LoadedDraft draft = {};
  EnginePlan plan = {};
};

// Mapped files are in memory once, whatever the number of engines that read them.
std::int64_t mapped_share(const Planning& planning);
// Of the device, all purposes and the share of mapped files together.
std::int64_t device_total(const Planning& planning);

// Before anything is said of a cache: is there room for any?
Result<void> check_weights(const Planning& planning, const SizedModel& sized);
// The cache may have been given a size of its own, and other programs may use the device.
Result<void> check_fits(const Planning& planning, const SizedModel& sized);
// Where the cache gets what the rest leaves of a share: by how much that is too small, or nothing.
std::string shortfall(const Planning& planning, const SizedModel& sized, std::int64_t other_bytes);

}  // namespace quire
