#pragma once
// The command line of everything that starts or plans an engine. Names are vLLM's where the meaning
// is.

#include <cstddef>

namespace CLI {
class App;
}

namespace quire {

struct EngineConfig;

// Puts the options that `add` adds under a heading of --help.
template <class App, class Add>
void in_group(App& app, const char* heading, Add add) {
  const std::size_t before = app.get_options().size();
  add();
  const auto options = app.get_options();
  for (std::size_t i = before; i < options.size(); ++i) options[i]->group(heading);
}

// Adds MODEL and the engine's flags; parsing fills config, which must outlive app. Call validate()
// afterwards.
void add_engine_flags(CLI::App& app, EngineConfig& config);

// What no field can show: flags that were given and contradict the model. After parsing; throws
// CLI::ValidationError.
void check_engine_flags(const CLI::App& app, const EngineConfig& config);

}  // namespace quire
