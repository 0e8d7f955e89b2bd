#pragma once
// The command line of `quire serve`.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "app/flags/engine_link_flags.h"
#include "app/flags/generation_flags.h"
#include "app/flags/log_flags.h"
#include "engine/config.h"
#include "server/config.h"

namespace quire {

struct ServeFlags {
  EngineConfig engine;       // its device is not automatic
  std::string why_not_cuda;  // where --device auto became cpu
  ServerConfig server;

  std::vector<std::string> without_effect;  // flags of vLLM's that were given and change nothing

  std::string revision;  // of MODEL, where that is org/name
  std::string tokenizer, download_dir;  // places of MODEL's own, or empty
  LogFlags log;
  int io_threads = 0;  // 0: by the number of cores
  // Engines elsewhere; without any of these they are threads of this process.
  std::vector<std::string> engine_addresses;
  std::string engine_listen;  // where as many as data_parallel_size dial
  bool engine_processes = false;
  bool engines_elsewhere() const {
    return engine_processes || !engine_listen.empty() || !engine_addresses.empty();
  }
  std::vector<SocketAddress> dialled, listened;  // the same, parsed
  EngineLinkFlags link_flags;
  SocketOptions link;  // as they are reached
  int engine_restarts = 5;
  std::chrono::milliseconds engine_timeout{std::chrono::seconds(10)};
  std::chrono::milliseconds engine_ready_timeout{std::chrono::minutes(10)};
  bool metrics_compat = false;
  std::string otlp_traces_endpoint;  // empty: no spans

  std::string chat_template;            // a file; empty: the model's
  std::string content_format = "auto";  // auto: as the template takes it
  std::string default_kwargs = "{}";    // JSON object
  GenerationFlags generation;
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
