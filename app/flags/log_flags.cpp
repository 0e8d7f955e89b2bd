#include "app/flags/log_flags.h"

#include <CLI/CLI.hpp>
#include <string>

namespace quire {

void add_log_flags(CLI::App& app, LogFlags& flags) {
  app.add_option_function<std::string>(
         "--log-format",
         [&flags](const std::string& name) { flags.format = *log::parse_format(name); },
         "How log lines are written: text or json (text)")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_option_function<std::string>(
         "--log-level",
         [&flags](const std::string& name) {
           flags.level = *log::parse_level(name);
           flags.level_name = name;
         },
         "The least that is logged: debug, info, warn or error (info)")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
}

}  // namespace quire
