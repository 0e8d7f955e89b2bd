#pragma once
// What tests of `quire plan` begin with.

#include <string>
#include <vector>

#include "app/plan/plan_main.h"

namespace quire {

inline EngineConfig config_for(const std::string& model) {
  EngineConfig config;
  config.model.path = model;
  config.cache.kv_cache_memory_bytes = 64 << 20;
  return config;
}

inline int plan(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return plan_main(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace quire
