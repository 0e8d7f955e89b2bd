#pragma once
// The command line of everything that starts or plans an engine. Names are vLLM's where the meaning
// is.

namespace CLI {
class App;
}

namespace quire {

struct EngineConfig;

// Adds MODEL and the engine's flags; parsing fills config, which must outlive app. Call validate()
// afterwards.
void add_engine_flags(CLI::App& app, EngineConfig& config);

}  // namespace quire
