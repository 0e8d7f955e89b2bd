#pragma once
// Flags of pooling models, spelled as vLLM's.

#include <string>

#include "model/pooling.h"

namespace CLI {
class App;
}

namespace quire {

void add_pooling_flags(CLI::App& app, PoolingOptions& pooling);

// vLLM's --pooler-config and what of --hf-overrides concerns pooling; what is unknown throws
// Failure, by name.
void read_pooler_config(const std::string& json, PoolingOptions& pooling);
void read_hf_overrides(const std::string& json, PoolingOptions& pooling);

}  // namespace quire
