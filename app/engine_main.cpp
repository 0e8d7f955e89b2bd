#include "app/engine_main.h"

#include <pthread.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/backends.h"
#include "app/engine_flags.h"
#include "app/exit_codes.h"
#include "app/failure_text.h"
#include "app/forgiving_args.h"
#include "app/model_path.h"
#include "app/secret_file.h"
#include "base/log.h"
#include "base/lost_files.h"
#include "engine/core/engine_thread.h"
#include "engine/structured/grammar_constraint.h"
#include "engine/wire/socket_channel.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

struct EngineMainFlags {
  EngineConfig engine;  // of it, what this machine decides
  int device_index = 0;
  std::string address_text;
  SocketAddress address;
  std::string secret_file;
  std::string secret;
};

void complete(EngineMainFlags& flags) {
  if (flags.engine.model.path.empty()) throw CLI::RequiredError("MODEL");
  try {
    flags.engine.model.path = model_at(flags.engine.model.path);
  } catch (const Failure& failure) {
    throw CLI::ValidationError("MODEL", failure.what());
  }
  const auto address = parse_socket_address(flags.address_text);
  if (!address) throw CLI::ValidationError("--listen", address.error().detail);
  flags.address = *address;
  auto secret = read_secret(flags.secret_file);
  if (!secret) throw CLI::ValidationError("--engine-secret-file", secret.error().detail);
  flags.secret = std::move(*secret);
  if (flags.secret.empty() && !flags.address.is_loopback())
    throw CLI::ValidationError("--listen", "other machines reach " + flags.address.text() +
                                               ": give --engine-secret-file too");
  const auto choice = choose_device(flags.engine.device);
  if (choice.has_error()) throw CLI::ValidationError(choice.error().detail);
  flags.engine.device = choice->kind;
}

std::optional<EngineMainFlags> parse(int argc, const char* const* argv, int& exit_code) {
  CLI::App app(
      "An engine that servers in other processes use: quire serve MODEL --engine ADDRESS. The "
      "first server configures it; what this machine decides is said here.",
      "quire engine");
  std::optional<EngineMainFlags> flags(std::in_place);
  app.add_option("MODEL,--model", flags->engine.model.path,
                 "Folder with config.json and *.safetensors, or a .gguf file");
  app.add_option("--listen", flags->address_text,
                 "Where servers connect: unix:/run/engine.sock or tcp://10.0.0.7:9000")
      ->required();
  app.add_option("--engine-secret-file", flags->secret_file,
                 "File with a secret of at least 16 characters that servers must know too");
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
    std::call_once(late->once, [&] {
      late->compile = structured::grammar_compiler(Tokenizer::load(model));
    });
    return late->compile(spec, slice);
  };
}

// The exit code.
int serve(const EngineMainFlags& flags) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // threads begun from here on inherit it
  const auto localize = [&flags](EngineConfig& config) {
    config.model.path = flags.engine.model.path;
    config.model.served_name.clear();
    config.device = flags.engine.device;
    config.cpu_threads = flags.engine.cpu_threads;
  };
  const CompileConstraint compile = constraint_compiler(flags.engine.model.path);
  auto end = make_socket_engine_end(flags.address,
                                    {.socket = {.secret = flags.secret}, .localize = localize});
  const EngineThread engine(
      EngineId{0}, std::make_unique<TellingEnd>(std::move(end), pthread_self()),
      [&flags, compile](const EngineConfig& config) {
        return make_backend(config, flags.device_index, compile);
      });
  int signal = 0;
  sigwait(&signals, &signal);
  log::info("engine.signal", {{"signal", signal}});
  return signal == SIGUSR1 ? kExitEngineDied : 0;
}

}  // namespace

int engine_main(int argc, const char* const* argv) {
  int exit_code = 0;
  const auto flags = parse(argc, argv, exit_code);
  if (!flags) return exit_code;
  end_on_lost_files(kExitModelLost);
  try {
    return serve(*flags);
  } catch (const std::exception& e) {
    log::error("engine.failed", {{"error", failure_text(e)}});
    return 1;
  }
}

}  // namespace quire
