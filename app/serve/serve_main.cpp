#include "app/serve/serve_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "app/args/exit_codes.h"
#include "app/args/failure_text.h"
#include "app/args/flag_names.h"
#include "app/args/foreign_flags.h"
#include "app/engines/backends.h"
#include "app/engines/engine_processes.h"
#include "app/serve/flags.h"
#include "app/serve/model_check.h"
#include "app/serve/model_text.h"
#include "app/serve/open_files.h"
#include "app/serve/otlp_exporter.h"
#include "app/serve/worker_pool.h"
#include "base/log.h"
#include "base/lost_files.h"
#include "engine/core/engine_thread.h"
#include "engine/core/mock_engine.h"
#include "engine/structured/grammar_constraint.h"
#include "engine/wire/in_process_channel.h"
#include "engine/wire/socket_channel.h"
#include "server/server.h"

namespace quire {

namespace {

int io_threads(const ServeFlags& flags) {
  if (flags.io_threads > 0) return flags.io_threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 4);
}

// A long text is worked on apart from probes and streams; two, so that one does not stop the next.
int text_workers() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 8);
}

struct Example {
  const char* path = "";
  const char* members = "";  // of the body, after the model's
};

// A request that works at once.
Example example_for(PoolingTask task) {
  switch (task) {
    case PoolingTask::embed: return {"/v1/embeddings", R"("input": "What is 12 + 7?")"};
    case PoolingTask::score:
      return {"/score", R"("text_1": "What is 12 + 7?", "text_2": ["19", "A sum"])"};
    case PoolingTask::none: break;
  }
  return {"/v1/chat/completions",
          R"("stream": true, "messages": [{"role": "user", "content": "What is 12 + 7?"}])"};
}

// For people at a terminal; logs go elsewhere.
void print_welcome(const std::string& address, const ServeFlags& flags, PoolingTask task) {
  const std::string& name = flags.server.served_model_names.front();
  const bool is_unix = address.starts_with("unix:");
  const std::string where =
      is_unix ? "--unix-socket " + flags.server.uds + " http://localhost" : address;
  const std::string key =
      flags.server.api_keys.empty() ? "" : " \\\n    -H 'Authorization: Bearer <your key>'";
  const Example example = example_for(task);
  std::fputs(fmt::format("\nQuire {} serves {} at {}\n\n"
                         "  curl -N {}{} -H 'Content-Type: application/json'{} \\\n"
                         "    -d '{{\"model\": \"{}\", {}}}'\n\n",
                         quire_version(), name, address, where, example.path, key, name,
                         example.members)
                 .c_str(),
             stdout);
  std::fflush(stdout);
}

// Connections that cannot be accepted would end up as errors; fewer are better.
Result<void> fit_open_files(ServerConfig& server) {
  const std::size_t wanted = server.limits.max_connections;
  const std::int64_t files = raise_open_files();
  if (auto fits = fit_connections(server.limits, files); fits.has_error()) return fits;
  if (server.limits.max_connections < wanted) {
    log::warn("server.fewer_connections",
              {{"max_connections", server.limits.max_connections},
               {"because", fmt::format("{} files may be open (ulimit -Hn, LimitNOFILE=)", files)}});
  }
  return {};
}

void warn_if_open(const ServerConfig& server) {
  const bool is_public = server.uds.empty() && (server.host.empty() || server.host == "0.0.0.0" ||
                                                server.host == "::");
  if (!is_public || !server.api_keys.empty() || !server.named_keys.empty()) return;
  log::warn("server.open", {{"host", server.host},
                            {"because", "whoever reaches this machine may use the model; give "
                                        "--api-key, or --host 127.0.0.1"}});
}

awaitable<void> wait_for_signal(asio::signal_set& signals) {
  const int number = co_await signals.async_wait(asio::use_awaitable);
  log::info("server.signal", {{"signal", number}});
}

enum class HangUp : std::uint8_t { stop, reload, ignore };

// SIGHUP is a closed terminal where there is one, unless nohup has taken that meaning from it.
// Otherwise, and where there is a certificate to read again, it is a request to reload.
HangUp meaning_of_hang_up(bool has_certificate) {
  if (has_certificate) return HangUp::reload;
  struct sigaction given {};
  if (::sigaction(SIGHUP, nullptr, &given) == 0 && given.sa_handler == SIG_IGN)
    return HangUp::ignore;
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) ::close(terminal);
  return terminal >= 0 ? HangUp::stop : HangUp::reload;
}

// Work that does not end must not keep a server from stopping.
void end_overdue() {
  log::error("server.abandoned", {{"because", "work for a request did not end in time"}});
  log::flush(std::chrono::milliseconds(500));
  std::_Exit(kExitAbandoned);
}

// An engine that is still starting has nothing that must be finished, and looks at nobody.
void leave_start_up() {
  log::flush(std::chrono::milliseconds(500));
  std::_Exit(0);
}

// The front end's ends of the lines to all engines, and those engines that are this server's own.
struct Engines {
  std::vector<std::unique_ptr<ClientEnd>> ends;
  std::vector<std::unique_ptr<EngineThread>> threads;
  std::vector<std::unique_ptr<MockEngine>> mocks;
  std::unique_ptr<EngineProcesses> processes;
};

Engines start_mocks(int count, bool instant) {
  Engines engines;
  for (int rank = 0; rank < count; ++rank) {
    const EngineId id{static_cast<std::uint32_t>(rank)};
    if (instant) {
      engines.ends.push_back(make_instant_mock(id));
      continue;
    }
    ChannelEnds ends = make_in_process_channel();
    engines.ends.push_back(std::move(ends.client));
    engines.mocks.push_back(std::make_unique<MockEngine>(id, std::move(ends.engine)));
  }
  return engines;
}

Engines start_threads(int count, const CompileConstraint& compile) {
  Engines engines;
  for (int rank = 0; rank < count; ++rank) {
    ChannelEnds ends = make_in_process_channel();
    engines.ends.push_back(std::move(ends.client));
    engines.threads.push_back(std::make_unique<EngineThread>(
        EngineId{static_cast<std::uint32_t>(rank)}, std::move(ends.engine),
        [rank, compile](const EngineConfig& config) {
          return make_backend(config, rank * config.parallel.tensor_parallel_size, compile);
        }));
  }
  return engines;
}

// What an engine does not learn from its front end's configuration.
std::vector<std::string> flags_of_processes(const ServeFlags& flags) {
  return {flags.engine.model.path,
          "--device",
          flags.engine.device == DeviceKind::cuda ? "cuda" : "cpu",
          "--cpu-threads",
          std::to_string(flags.engine.cpu_threads),
          "--log-format",
          flags.log.format == log::Format::json ? "json" : "text",
          "--log-level",
          flags.log.level_name};
}

Engines reach_engines(const ServeFlags& flags) {
  Engines engines;
  const int count = flags.engine.parallel.data_parallel_size;
  if (flags.engine_processes) {
    engines.processes = std::make_unique<EngineProcesses>(
        EngineProcessOptions{.count = count,
                             .devices = flags.engine.parallel.tensor_parallel_size,
                             .flags = flags_of_processes(flags),
                             .max_restarts = flags.engine_restarts,
                             .socket = flags.link});
    engines.ends = engines.processes->take_ends();
  } else if (!flags.listened.empty()) {
    engines.ends = make_listening_client_ends(flags.listened.front(), count, flags.link);
  }
  for (const SocketAddress& address : flags.dialled)
    engines.ends.push_back(make_socket_client_end(address, flags.link));
  return engines;
}

// Paths mean something on this machine only; each engine elsewhere has its own, and those that dial
// share no memory and no cores that this server knew of.
EngineConfig config_for_engines(const ServeFlags& flags) {
  EngineConfig config = flags.engine;
  if (flags.engines_elsewhere()) config.model.path.clear();
  if (!flags.listened.empty()) config.parallel.data_parallel_size = 1;
  return config;
}

// Its own threads and processes load this server's folder.
std::function<Result<void>(const Ready&)> model_check(const ServeFlags& flags) {
  if (flags.dialled.empty() && flags.listened.empty()) return {};
  return same_model_as(flags.engine);
}

awaitable<void> serve(asio::any_io_executor pool, const ServeFlags& flags) {
  const std::shared_ptr<const TextPipeline> text = load_model_text(flags);
  const std::shared_ptr<const Tokenizer> tokenizer(text, &text->tokenizer());
  Metrics metrics({flags.server.served_model_names.front(), std::string(quire_version()),
                   flags.metrics_compat});
  const int num_engines = flags.engine.parallel.data_parallel_size;
  Engines all = flags.engines_elsewhere() ? reach_engines(flags)
                : flags.engine.device == DeviceKind::mock
                    ? start_mocks(num_engines, flags.engine.mock_step_us == 0)
                    : start_threads(num_engines, structured::grammar_compiler(tokenizer));
  EngineGroup engines(
      pool, std::move(all.ends), config_for_engines(flags),
      {.ready_timeout = flags.engine_ready_timeout, .has_our_model = model_check(flags)});
  const WorkerPool worker(text_workers());
  std::optional<OtlpExporter> spans;
  if (!flags.otlp_traces_endpoint.empty()) {
    const char* const service = std::getenv("OTEL_SERVICE_NAME");
    spans.emplace(flags.otlp_traces_endpoint, service ? service : "quire");
  }
  const auto strand = co_await asio::this_coro::executor;
  asio::signal_set signals(strand, SIGINT, SIGTERM), hang_ups(strand);
  const HangUp hang_up = meaning_of_hang_up(!flags.server.ssl_certfile.empty());
  if (hang_up == HangUp::stop) signals.add(SIGHUP);
  if (hang_up == HangUp::reload) hang_ups.add(SIGHUP);
  ServerHooks hooks;
  bool was_ready = false;
  hooks.on_ready = [&flags, &engines, &was_ready](const std::string& address) {
    was_ready = true;
    if (flags.log.format == log::Format::json) return;  // server.ready says it to machines
    print_welcome(address, flags, engines.ready().engines.front().pooling.task);
  };
  hooks.on_overdue = end_overdue;
  co_await run_server(
      {flags.server, flags.engine, engines, *text, metrics, pool, worker.executor(),
       spans ? &*spans : nullptr},
      hooks,
      [&signals] { return wait_for_signal(signals); },
      hang_up == HangUp::reload ? [&hang_ups] { return wait_for_signal(hang_ups); }
                                : std::function<awaitable<void>()>());
  if (!was_ready && !all.threads.empty()) leave_start_up();
}

}  // namespace

int serve_main(int argc, const char* const* argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader of logs or of stdout that leaves is no reason to end
  std::signal(SIGXFSZ, SIG_IGN);  // nor is a limit of a file's size: writing says it
  end_on_lost_files(kExitModelLost);
  int exit_code = 0;
  auto flags = parse_serve_flags(argc, argv, exit_code);
  if (!flags) return exit_code;
  log::configure(flags->log.format, flags->log.level, with_flags);
  if (const auto fits = fit_open_files(flags->server); fits.has_error()) {
    log::error("server.failed", {{"error", fits.error().detail}});
    return 1;
  }
  warn_if_open(flags->server);
  warn_if_plaintext(flags->link, flags->dialled, flags->listened);
  for (const std::string& flag : flags->without_effect) {
    log::info("flag.without_effect", {{"flag", flag}});
  }
  for (const auto& [name, instead] : unread_variables(environ)) {
    log::warn("environment.not_read", {{"variable", name}, {"instead", instead}});
  }
  if (!flags->why_not_cuda.empty()) log::info("device.cpu", {{"because", flags->why_not_cuda}});
  try {
    run(io_threads(*flags), [&](asio::any_io_executor pool) { return serve(pool, *flags); });
    return 0;
  } catch (const EngineDied& e) {
    log::error("server.engine_died", {{"error", e.what()}});
    return kExitEngineDied;
  } catch (const std::exception& e) {
    log::error("server.failed", {{"error", failure_text(e)}});
    return 1;
  }
}

}  // namespace quire
