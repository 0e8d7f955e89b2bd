#include "app/commands/engine_main.h"

#include <pthread.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/args/exit_codes.h"
#include "app/args/failure_text.h"
#include "app/args/flag_names.h"
#include "app/args/forgiving_args.h"
#include "app/engines/backends.h"
#include "app/flags/engine_link_flags.h"
#include "app/flags/log_flags.h"
#include "app/models/pull_main.h"
#include "base/log.h"
#include "base/lost_files.h"
#include "engine/core/engine_thread.h"
#include "engine/structured/grammar_constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

struct EngineMainFlags {
  EngineConfig engine;  // of it, what this machine decides
  int device_index = 0;
  int rank = 0;
  std::string listen_text;
  std::vector<std::string> connect_texts;
  EngineLinkFlags link_flags;
  LogFlags log;
  double shutdown_seconds = 30;
  SocketEngineOptions socket;  // what follows from these
};

SocketAddress parse_address(const char* flag, const std::string& text) {
  auto address = parse_socket_address(text);
  if (!address) throw CLI::ValidationError(flag, address.error().detail);
  return std::move(*address);
}

void complete(EngineMainFlags& flags) {
  if (flags.engine.model.path.empty()) throw CLI::RequiredError("MODEL");
  try {
    flags.engine.model.path = local_model(flags.engine.model.path);
    find_draft_model(flags.engine, false);
  } catch (const Failure& failure) {
    throw CLI::ValidationError("MODEL", failure_text(failure));
  }
  if (flags.listen_text.empty() && flags.connect_texts.empty())
    throw CLI::RequiredError("--listen or --connect");
  std::vector<SocketAddress> listened;
  if (!flags.listen_text.empty()) {
    listened.push_back(parse_address("--listen", flags.listen_text));
    flags.socket.listen = listened.front();
  }
  for (const std::string& text : flags.connect_texts)
    flags.socket.dial.push_back(parse_address("--connect", text));
  auto link = engine_link(flags.link_flags, flags.socket.dial, listened);
  if (!link)
    throw CLI::ValidationError(with_flags(link.error().field), with_flags(link.error().detail));
  flags.socket.socket = std::move(*link);
  flags.socket.rank = flags.rank;
  const auto choice = choose_device(flags.engine.device);
  if (choice.has_error()) throw CLI::ValidationError(with_flags(choice.error().detail));
  flags.engine.device = choice->kind;
}

void add_reach_flags(CLI::App& app, EngineMainFlags& flags) {
  app.add_option("--listen", flags.listen_text,
                 "Where servers connect: unix:/run/engine.sock or tcp://10.0.0.7:9000");
  app.add_option("--connect", flags.connect_texts,
                 "Where a server waits for engines (quire serve --engine-listen), instead or too; "
                 "several may be given");
  add_engine_link_flags(app, flags.link_flags);
  app.add_option("--rank", flags.rank,
                 "Its number in the log and in KV events, whose ports count from it (0)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--shutdown-timeout", flags.shutdown_seconds,
                 "After SIGTERM, running requests may take so many seconds to finish (30)")
      ->check(CLI::Range(0.0, 1e6));
}

std::optional<EngineMainFlags> parse(int argc, const char* const* argv, int& exit_code) {
  CLI::App app(
      "An engine that servers in other processes use: quire serve MODEL --engine ADDRESS. The "
      "first server configures it; what this machine decides is said here.",
      "quire engine");
  std::optional<EngineMainFlags> flags(std::in_place);
  app.add_option("MODEL,--model", flags->engine.model.path,
                 "Folder with config.json and *.safetensors, or a .gguf file");
  add_reach_flags(app, *flags);
  app.add_option_function<std::string>(
         "--device",
         [&flags](const std::string& name) {
           flags->engine.device = name == "cpu"    ? DeviceKind::cpu
                                  : name == "cuda" ? DeviceKind::cuda
                                                   : DeviceKind::automatic;
         },
         "auto, cpu or cuda (auto)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--device-index", flags->device_index, "Which GPU, counted from 0 (0)")
      ->check(CLI::Range(0, 64));
  app.add_option("--cpu-threads", flags->engine.cpu_threads, "0: one per core (0)")
      ->check(CLI::Range(0, 1024));
  add_log_flags(app, flags->log);
  try {
    parse_forgivingly(app, argc, argv);
    complete(*flags);
    return flags;
  } catch (const CLI::ParseError& e) {
    exit_code = app.exit(e);
    return std::nullopt;
  }
}

// An engine that has ended closes its end; this tells the process.
class TellingEnd final : public EngineEnd {
 public:
  TellingEnd(std::unique_ptr<EngineEnd> end, pthread_t main_thread)
      : end_(std::move(end)), main_thread_(main_thread) {}
  bool take(std::vector<Command>& commands) override { return end_->take(commands); }
  bool wait_and_take(std::vector<Command>& commands) override {
    return end_->wait_and_take(commands);
  }
  void wake() override { end_->wake(); }
  void publish(EngineEvent event) override { end_->publish(std::move(event)); }
  void close() override {
    end_->close();
    pthread_kill(main_thread_, SIGUSR1);
  }

 private:
  std::unique_ptr<EngineEnd> end_;
  const pthread_t main_thread_;
};

// Reads the model's tokens with the first constraint: most engines of a fleet never see one.
CompileConstraint constraint_compiler(std::string model) {
  struct Late {
    std::once_flag once;
    CompileConstraint compile;
  };
  return [model = std::move(model), late = std::make_shared<Late>()](const ConstraintSpec& spec,
                                                                     const Slice& slice) {
    std::call_once(late->once,
                   [&] { late->compile = structured::grammar_compiler(Tokenizer::load(model)); });
    return late->compile(spec, slice);
  };
}

// Until what runs has ended, or the time is over. New requests may still be on the way when the
// front ends have been told, so that the end waits a moment for those too. The exit code.
int finish_what_runs(const EngineMainFlags& flags, const sigset_t& signals, SocketEngineEnd& line) {
  constexpr auto kGrace = std::chrono::milliseconds(200);
  constexpr timespec kGlance{0, 20'000'000};
  line.leave();
  const auto begun = Clock::now();
  auto latest_live = begun;
  while (std::chrono::duration<double>(Clock::now() - begun).count() < flags.shutdown_seconds) {
    const int signal = sigtimedwait(&signals, nullptr, &kGlance);
    if (signal == SIGUSR1) return kExitEngineDied;
    if (signal > 0) return 0;  // asked twice: now
    if (line.num_live() > 0) latest_live = Clock::now();
    if (Clock::now() - latest_live >= kGrace) return 0;
  }
  log::warn("engine.requests_cut", {{"engine", flags.rank}, {"requests", line.num_live()}});
  return 0;
}

// The exit code.
int serve(const EngineMainFlags& flags) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // threads begun from here on inherit it
  SocketEngineOptions options = flags.socket;
  options.localize = [&flags](EngineConfig& config) {
    config.model.path = flags.engine.model.path;
    config.model.served_name.clear();
    config.device = flags.engine.device;
    config.cpu_threads = flags.engine.cpu_threads;
  };
  const CompileConstraint compile = constraint_compiler(flags.engine.model.path);
  auto end = make_socket_engine_end(std::move(options));
  SocketEngineEnd& line = *end;  // until the engine ends
  const EngineThread engine(EngineId{static_cast<std::uint32_t>(flags.rank)},
                            std::make_unique<TellingEnd>(std::move(end), pthread_self()),
                            [&flags, compile](const EngineConfig& config) {
                              return make_backend(config, flags.device_index, compile);
                            });
  int signal = 0;
  sigwait(&signals, &signal);
  log::info("engine.signal", {{"engine", flags.rank}, {"signal", signal}});
  return signal == SIGUSR1 ? kExitEngineDied : finish_what_runs(flags, signals, line);
}

}  // namespace

int engine_main(int argc, const char* const* argv) {
  int exit_code = 0;
  const auto flags = parse(argc, argv, exit_code);
  if (!flags) return exit_code;
  end_on_lost_files(kExitModelLost);
  log::configure(flags->log.format, flags->log.level, with_flags);
  std::vector<SocketAddress> listened;
  if (flags->socket.listen) listened.push_back(*flags->socket.listen);
  warn_if_plaintext(flags->socket.socket, flags->socket.dial, listened);
  try {
    return serve(*flags);
  } catch (const std::exception& e) {
    log::error("engine.failed", {{"engine", flags->rank}, {"error", failure_text(e)}});
    return 1;
  }
}

}  // namespace quire
