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

// What of --compilation-config, and of --max-cudagraph-capture-size on a CPU, the parsed command
// line says to no effect on the device that was chosen. Sizes that only those two asked for are
// forgotten where there are no graphs.
std::vector<std::string> idle_graph_flags(const CLI::App& app, EngineConfig& config,
                                          DeviceKind device);

}  // namespace quire
