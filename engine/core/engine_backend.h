#pragma once
// What an engine computes on. app/ and tests make one; nothing here knows which there are.

#include <functional>
#include <memory>

#include "backend/device.h"
#include "backend/ops.h"
#include "engine/config.h"
#include "engine/core/rank_group.h"
#include "engine/structured/token_constraint.h"

namespace quire {

struct EngineBackend {
  DeviceKind kind = DeviceKind::cpu;  // not automatic
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;  // ends before the device
  // For the engine's model; empty: requests with a constraint are refused.
  CompileConstraint compile_constraint = {};
  std::unique_ptr<RankGroup> ranks = {};  // of a divided model; ends before the others
};

// Called on the engine's thread. Throws Failure where the configuration asks for what is not there.
using BackendFactory = std::function<EngineBackend(const EngineConfig&)>;

}  // namespace quire
