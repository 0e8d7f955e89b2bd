#pragma once
// What a configuration means for the model in its folder, before anything is planned: does it pool,
// and what must be otherwise if it does.

#include "engine/config.h"
#include "model/config.h"
#include "model/pooling_config.h"

namespace quire {

struct ServedModel {
  EngineConfig config;  // as asked, but for what a pooling model leaves no choice in
  ModelConfig model;
  PoolingConfig pooling;
  std::vector<std::string> notes = {};  // of what is not as asked
};

// Throws Failure for files that lie or lack, and for flags that the model cannot follow, by name.
ServedModel read_served_model(const EngineConfig& asked);

}  // namespace quire
