#include "app/serve/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>

#include "app/args/config_text.h"
#include "app/args/exit_codes.h"
#include "app/args/flag_kinds.h"
#include "app/args/flag_names.h"
#include "app/args/forgiving_args.h"
#include "app/args/idle_flags.h"
#include "app/engines/backends.h"
#include "app/flags/engine_flags.h"
#include "app/flags/graph_flags.h"
#include "app/flags/listening_flags.h"
#include "app/serve/serve_model.h"
#include "gguf/archive.h"
#include "jinja/values/value.h"
#include "net/url.h"
#include "text/output/dialect.h"

namespace quire {

namespace {

using std::chrono::milliseconds;

template <class T>
std::string names_of(const std::vector<T>& all) {
  std::string names;
  for (const T& one : all) {
    for (const std::string& alias : one.aliases) names += alias + ", ";
    names += one.name + ", ";
  }
  names.resize(names.size() - 2);
  return names;
}

CLI::Validator known(std::function<bool(const std::string&)> is_known, std::string names) {
  return CLI::Validator(
      [is_known = std::move(is_known), names = std::move(names)](std::string& name) {
        const bool fits = name == "none" || is_known(name);
        return fits ? std::string() : name + " is not known; known are none, " + names;
      },
      "NAME");
}

void add_text_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--chat-template", flags.chat_template,
                 "Jinja file, or the template itself, instead of the model's")
      ->check([](const std::string& text) {
        const bool is_template = text.find_first_of("{}\n") != text.npos;
        return is_template ? std::string() : CLI::ExistingFile(text);
      });
  app.add_option("--default-chat-template-kwargs", flags.default_kwargs,
                 "JSON object given to the chat template where a request does not")
      ->type_name("JSON");
  app.add_option("--chat-template-content-format", flags.content_format,
                 "What the chat template is given of a message: string (its texts in one), openai "
                 "(a list of parts) or auto (a list if the template has a loop over it)")
      ->check(CLI::IsMember({"auto", "string", "openai"}));
  app.add_flag("--trust-request-chat-template", flags.trust_request_chat_template,
               "Requests may bring their own chat template");
  add_generation_flags(app, flags.generation);
  app.add_option("--tool-call-parser", flags.tool_call_parser,
                 "How the model writes tool calls: " + names_of(dialects()) +
                     ", or none; by default what the chat template shows")
      ->check(known([](const std::string& name) { return find_dialect(name) != nullptr; },
                    names_of(dialects())));
  app.add_flag("--enable-auto-tool-choice", flags.enable_auto_tool_choice,
               "Refuse to start without a tool call parser");
  app.add_option("--reasoning-parser", flags.reasoning_parser,
                 "How the model writes its reasoning: " + names_of(reasoning_formats()) +
                     ", or none; by default what the chat template shows")
      ->check(known([](const std::string& name) { return find_reasoning_format(name) != nullptr; },
                    names_of(reasoning_formats())));
  app.add_flag("--exclude-tools-when-tool-choice-none", flags.exclude_tools_when_none,
               "tool_choice none hides the tools from the model");
  app.add_flag("--enable-prompt-tokens-details,!--no-enable-prompt-tokens-details",
               flags.prompt_tokens_details, "Say in usage how many prompt tokens were cached");
  app.add_flag("--enable-force-include-usage", flags.force_include_usage,
               "Every stream ends with its usage");
}

void add_engine_process_flags(CLI::App& app, ServeFlags& flags) {
  auto* dial =
      app.add_option("--engine", flags.engine_addresses,
                     "Address of a `quire engine` process, unix:/path or tcp://host:port, instead "
                     "of an engine in this one; several may be given")
          ->excludes("--data-parallel-size");
  auto* listen = app.add_option("--engine-listen", flags.engine_listen,
                                "Address that --data-parallel-size engines connect to: quire "
                                "engine --connect")
                     ->excludes(dial);
  auto* processes =
      app.add_flag("--engine-processes", flags.engine_processes,
                   "Run each of the --data-parallel-size engines as a process, which is started "
                   "again when it dies")
          ->excludes(dial)
          ->excludes(listen);
  app.add_option("--engine-restarts", flags.engine_restarts,
                 "How often within ten minutes an engine process is started again (5)")
      ->check(CLI::Range(0, 1000))
      ->needs(processes);
  add_engine_link_flags(app, flags.link_flags);
  add_seconds(
      app, "--engine-timeout", flags.engine_timeout,
      "Give up an engine process that does not answer for this long; it is taken back when it "
      "returns (10)",
      std::chrono::milliseconds(100));
}

// Of "/health, /metrics".
std::vector<std::string> paths_of(std::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view path = text.substr(0, comma);
    while (path.starts_with(' ')) path.remove_prefix(1);
    while (path.ends_with(' ')) path.remove_suffix(1);
    if (!path.empty()) paths.emplace_back(path);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return paths;
}

void add_process_flags(CLI::App& app, ServeFlags& flags) {
  add_log_flags(app, flags.log);
  app.add_option("--io-threads", flags.io_threads,
                 "Threads for connections; 0: by the number of cores")
      ->check(CLI::Range(0, 256));
  app.add_flag("--access-log", flags.server.access_log,
               "Log each request: id, W3C trace, name of the key, path, status, seconds");
  app.add_option_function<std::string>(
         "--disable-access-log-for-endpoints",
         [&flags](const std::string& text) { flags.server.unlogged_paths = paths_of(text); },
         "Paths that --access-log leaves out: /health,/metrics")
      ->type_name("PATHS");
  app.add_option("--otlp-traces-endpoint", flags.otlp_traces_endpoint,
                 "OpenTelemetry collector that spans of requests go to, over HTTP as JSON: "
                 "http://localhost:4318/v1/traces")
      ->type_name("URL");
  add_seconds(
      app, "--engine-stall-timeout", flags.server.stall_timeout,
      "/health/live says no when an engine with requests says nothing for this long (120); 0: "
      "never");
  add_seconds(app, "--engine-ready-timeout", flags.engine_ready_timeout,
              "Give up when an engine says nothing for this long while it starts (600)",
              std::chrono::milliseconds(100));
  app.add_flag("--metrics-compat", flags.metrics_compat,
               "Also names that vLLM has retired, such as vllm:gpu_cache_usage_perc");
}

// Where engines are elsewhere: their addresses, and how they are reached.
void complete_link(ServeFlags& flags) {
  const auto parse = [](const char* flag, const std::string& text) {
    auto address = parse_socket_address(text);
    if (!address) throw CLI::ValidationError(flag, address.error().detail);
    return std::move(*address);
  };
  for (const std::string& text : flags.engine_addresses) {
    SocketAddress address = parse("--engine", text);
    const auto is_same = [&](const SocketAddress& one) { return one.text() == address.text(); };
    if (std::ranges::any_of(flags.dialled, is_same))
      throw CLI::ValidationError("--engine", text + " is given twice");
    flags.dialled.push_back(std::move(address));
  }
  if (!flags.engine_listen.empty())
    flags.listened.push_back(parse("--engine-listen", flags.engine_listen));
  auto link = engine_link(flags.link_flags, flags.dialled, flags.listened);
  if (!link)
    throw CLI::ValidationError(with_flags(link.error().field), with_flags(link.error().detail));
  flags.link = std::move(*link);
  flags.link.silence = flags.engine_timeout;
}

// Before their files are read.
void refuse_idle_link_flags(const CLI::App& app, const ServeFlags& flags) {
  constexpr std::array<std::string_view, 5> kOfLinks{
      "--engine-secret-file", "--engine-ssl-certfile", "--engine-ssl-keyfile",
      "--engine-ssl-ca-certs", "--engine-plaintext"};
  if (flags.engine_addresses.empty() && flags.engine_listen.empty())
    refuse_given(app, kOfLinks, "without --engine or --engine-listen");
}

// Flags that were given and that nothing would read.
void refuse_idle_flags(const CLI::App& app, const ServeFlags& flags) {
  constexpr std::array<std::string_view, 2> kOfOrigins{"--allowed-methods", "--allowed-headers"};
  if (flags.server.cors.origins.empty()) refuse_given(app, kOfOrigins, "without --allowed-origins");
  constexpr std::array<std::string_view, 1> kOfProcesses{"--engine-timeout"};
  if (flags.dialled.empty() && flags.listened.empty() && !flags.engine_processes)
    refuse_given(app, kOfProcesses, "without --engine, --engine-listen or --engine-processes");
  constexpr std::array<std::string_view, 1> kOfOpenServers{"--allowed-hosts"};
  if (!flags.server.api_keys.empty() || !flags.server.named_keys.empty())
    refuse_given(app, kOfOpenServers, "beside a key: such a server answers to every name");
  if (flags.engine.device == DeviceKind::mock) refuse_beside_mock(app);
}

void check_kwargs(const std::string& json) {
  std::string why =
      "--default-chat-template-kwargs must be a JSON object, such as {\"enable_thinking\": false}";
  try {
    if (jinja::parse_json(json).is(jinja::Value::Kind::dict)) return;
  } catch (const Failure& failure) {
    why += std::string(": ") + failure.what();
  }
  throw CLI::ValidationError(why);
}

void check_url(const char* flag, const std::string& text) {
  try {
    if (!text.empty()) net::Url::parse(text);
  } catch (const Failure& failure) {
    throw CLI::ValidationError(flag, failure.what());
  }
}

// A file's last line end comes along with $(<file) in some shells and secrets of clusters; other
// blanks at an end would be lost in a header, and no request could show the key.
void check_key(std::string& key) {
  while (key.ends_with('\n') || key.ends_with('\r')) key.pop_back();
  if (key.empty()) throw CLI::ValidationError("--api-key", "a key must not be empty");
  const auto is_wrong = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (key.front() == ' ' || key.back() == ' ' || std::ranges::any_of(key, is_wrong))
    throw CLI::ValidationError(
        "--api-key", "a key must not begin or end with a blank, nor hold a control character");
}

// What only makes sense together, and what follows from what was given.
void complete(const CLI::App& app, ServeFlags& flags) {
  if (flags.enable_auto_tool_choice && flags.tool_call_parser == "none") {
    throw CLI::ValidationError("--enable-auto-tool-choice", "contradicts --tool-call-parser none");
  }
  check_kwargs(flags.default_kwargs);
  check_url("--otlp-traces-endpoint", flags.otlp_traces_endpoint);
  complete_link(flags);
  find_model_folder(flags);
  const HttpLimits& limits = flags.server.limits;
  if (limits.body_bytes_in_flight < limits.body_bytes) {
    throw CLI::ValidationError(
        "--max-body-bytes-in-flight",
        "must not be below --max-body-bytes, " + std::to_string(limits.body_bytes));
  }
  if (const auto valid = validate(flags.server.cors); valid.has_error()) {
    throw CLI::ValidationError(with_flags(valid.error().detail));
  }
  for (auto* keys :
       {&flags.server.api_keys, &flags.server.metrics_api_keys, &flags.server.admin_api_keys}) {
    std::ranges::for_each(*keys, check_key);
  }
  if (flags.engine.device != DeviceKind::mock) {
    const auto choice = choose_device(flags.engine.device);
    if (choice.has_error()) throw CLI::ValidationError(choice.error().detail);
    flags.engine.device = choice->kind;
    flags.why_not_cuda = choice->why_not_cuda;
  }
  std::ranges::copy(members_without_effect(app), std::back_inserter(flags.without_effect));
  if (auto flag = forget_idle_sizes(app, flags.engine, flags.engine.device); !flag.empty())
    flags.without_effect.push_back(std::move(flag));
  if (const auto valid = validate(flags.engine); valid.has_error()) {
    throw CLI::ValidationError(with_flags(valid.error().detail));
  }
  flags.server.spelling = with_flags;
  if (flags.server.model_root.empty()) flags.server.model_root = flags.engine.model.path;
  if (flags.server.served_model_names.empty()) {
    const auto path = std::filesystem::absolute(flags.engine.model.path).lexically_normal();
    flags.server.served_model_names.push_back(gguf::is_gguf(path) ? path.stem().string()
                                              : path.has_filename()
                                                  ? path.filename().string()
                                                  : path.parent_path().filename().string());
  }
  flags.engine.model.served_name = flags.server.served_model_names.front();
}

}  // namespace

std::optional<ServeFlags> parse_serve_flags(int argc, const char* const* argv, int& exit_code) {
  CLI::App app("Serves a model folder over HTTP, as OpenAI's API has it.", "quire serve");
  app.set_config("--config", "", "TOML file of these flags, without the leading dashes");
  bool print_config = false;
  app.add_flag("--print-config", print_config, "Print these flags as such a file, and end");
  std::optional<ServeFlags> flags(std::in_place);
  add_engine_flags(app, flags->engine);
  app.remove_option(app.get_option("--served-model-name"));
  in_group(app, "Model", [&] { add_serve_model_flags(app, *flags); });
  in_group(app, "Listening and access", [&] { add_listening_flags(app, flags->server); });
  in_group(app, "Prompts and answers", [&] { add_text_flags(app, *flags); });
  in_group(app, "Engines in other processes", [&] { add_engine_process_flags(app, *flags); });
  in_group(app, "Process", [&] { add_process_flags(app, *flags); });
  try {
    flags->without_effect = parse_forgivingly(app, argc, argv);
    if (app.count("--ssl-ca-certs") == 0 && flags->server.ssl_cert_reqs != ClientCertificates::none)
      throw CLI::RequiresError("--ssl-cert-reqs", "--ssl-ca-certs");
    if (app.count("--ssl-ca-certs") > 0 && app.count("--ssl-cert-reqs") == 0)
      flags->server.ssl_cert_reqs = ClientCertificates::required;
    if (print_config) {
      std::cout << config_text(app);
      return std::nullopt;
    }
    refuse_idle_link_flags(app, *flags);
    complete(app, *flags);
    refuse_idle_flags(app, *flags);
    check_engine_flags(app, flags->engine);
    return flags;
  } catch (const CLI::ParseError& e) {
    exit_code = app.exit(e);
    return std::nullopt;
  }
}

}  // namespace quire
