#pragma once
// How a process that serves writes its log: of `quire serve` and `quire engine`.

#include <string>

#include "base/log.h"

namespace CLI {
class App;
}

namespace quire {

struct LogFlags {
  log::Format format = log::Format::text;
  log::Level level = log::Level::info;
  std::string level_name = "info";
};

void add_log_flags(CLI::App& app, LogFlags& flags);

}  // namespace quire
