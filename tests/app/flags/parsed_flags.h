#pragma once
// What an engine's flags make of a command line.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "app/flags/engine_flags.h"
#include "engine/config.h"

namespace quire {

inline EngineConfig parsed(std::vector<std::string> arguments) {
  CLI::App app;
  EngineConfig config;
  add_engine_flags(app, config);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  return config;
}

inline std::string refusal(std::vector<std::string> arguments) {
  try {
    parsed(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

}  // namespace quire
