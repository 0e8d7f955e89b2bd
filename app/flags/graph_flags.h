#pragma once
// The flags of CUDA graphs.

#include <string>
#include <vector>

#include "engine/config.h"

namespace CLI {
class App;
}

namespace quire {

// Behind --max-num-seqs, which bounds what is captured.
void add_graph_flags(CLI::App& app, EngineConfig& config);

// What only --compilation-config or --max-cudagraph-capture-size asked for says nothing on a device
// without graphs. Returns which flag that was, of sizes before the mode; empty: none.
std::string forget_idle_sizes(const CLI::App& app, EngineConfig& config, DeviceKind device);

// Of --compilation-config on the parsed command line: what is vLLM's alone.
std::vector<std::string> members_without_effect(const CLI::App& app);

}  // namespace quire
