#pragma once
// What an engine answers at start-up, from the plan that it runs by.

#include <string>

#include "engine/config.h"
#include "engine/core/engine_plan.h"
#include "engine/wire/messages.h"

namespace quire {

struct EngineIdentity {
  EngineId engine;
  DType dtype = DType::bf16;
  std::string device;
  std::string model_fingerprint;
  int vocab_size = 0;
  double startup_seconds = 0;
};

Ready make_ready(const EngineIdentity& identity, const EnginePlan& plan,
                 const MemoryUses& allocated);

}  // namespace quire
