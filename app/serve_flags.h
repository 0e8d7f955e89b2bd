#pragma once
// The command line of `quire serve`.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/config.h"
#include "server/config.h"

namespace quire {

struct ServeFlags {
  EngineConfig engine;       // its device is not automatic
  std::string why_not_cuda;  // where --device auto became cpu
  ServerConfig server;

  std::vector<std::string> without_effect;  // flags of vLLM's that were given and change nothing

  log::Format log_format = log::Format::text;
  log::Level log_level = log::Level::info;
  int io_threads = 0;  // 0: by the number of cores
  std::vector<std::string> engine_addresses;  // none: the engines are threads of this process
  std::string engine_secret_file;
  std::chrono::milliseconds engine_timeout{std::chrono::seconds(10)};
  std::chrono::milliseconds engine_ready_timeout{std::chrono::minutes(10)};
  bool metrics_compat = false;

  std::string chat_template;          // a file; empty: the model's
  std::string default_kwargs = "{}";  // JSON object
  std::string generation_config = "auto";
  std::optional<std::string> tool_call_parser;  // unset: where the chat template speaks of it
  std::optional<std::string> reasoning_parser;
  bool enable_auto_tool_choice = false;
  bool trust_request_chat_template = false;
  bool exclude_tools_when_none = false;
  bool prompt_tokens_details = true;
  bool force_include_usage = false;
};

// Unset: the command line was wrong or asked for help, which has been printed; exit_code says
// which.
std::optional<ServeFlags> parse_serve_flags(int argc, const char* const* argv, int& exit_code);

}  // namespace quire
