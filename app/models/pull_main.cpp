#include "app/models/pull_main.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "app/args/failure_text.h"
#include "app/args/forgiving_args.h"
#include "app/models/model_path.h"
#include "base/error.h"
#include "hub/pull.h"
#include "model/draft_config.h"

namespace quire {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRedraw{250};
constexpr std::chrono::seconds kLine{10};  // where the output is no terminal

volatile sig_atomic_t g_stopped = 0;

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

std::string duration_text(double seconds) {
  const auto s = static_cast<long>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  return s < 3600 ? fmt::format("{}:{:02} min", s / 60, s % 60)
                  : fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

// Shows how far it is while another thread works.
class ProgressLine {
 public:
  ProgressLine(const hub::PullProgress& progress, bool quiet)
      : progress_(progress), is_terminal_(::isatty(STDERR_FILENO)) {
    if (!quiet) thread_ = std::jthread([this](std::stop_token stop) { show(stop); });
  }
  ~ProgressLine() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
    if (is_terminal_) std::fputs("\r\033[K", stderr);
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void show(const std::stop_token& stop) {
    auto shown = Clock::now();
    std::uint64_t received = 0;
    double rate = 0;
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(kRedraw);
      const std::uint64_t now = progress_.received;
      const double newest =
          static_cast<double>(now - received) / std::chrono::duration<double>(kRedraw).count();
      rate = received == 0 ? newest : 0.9 * rate + 0.1 * newest;  // of the last seconds
      received = now;
      if (!is_terminal_ && Clock::now() - shown < kLine) continue;
      shown = Clock::now();
      std::fputs((is_terminal_ ? "\r\033[K" + line(rate) : line(rate) + "\n").c_str(), stderr);
    }
  }
  std::string line(double rate) const {
    const double total = static_cast<double>(progress_.total),
                 present = static_cast<double>(progress_.present);
    std::string text = fmt::format("{}/{} files, {} of {}, {}/s", progress_.files_done.load(),
                                   progress_.files.load(), bytes_text(present), bytes_text(total),
                                   bytes_text(rate));
    if (rate > 1 && total > present)
      text += ", " + duration_text((total - present) / rate) + " left";
    return text;
  }

  const hub::PullProgress& progress_;
  bool is_terminal_;
  std::jthread thread_;
};

// Ctrl-C and SIGTERM end a download in order: what has come is kept.
class StopOnSignal {
 public:
  StopOnSignal() {
    g_stopped = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { g_stopped = 1; };
    ::sigaction(SIGINT, &action, &before_[0]);
    ::sigaction(SIGTERM, &action, &before_[1]);
  }
  ~StopOnSignal() {
    ::sigaction(SIGINT, &before_[0], nullptr);
    ::sigaction(SIGTERM, &before_[1], nullptr);
  }

 private:
  struct sigaction before_[2]{};
};

struct PullSettings {
  int parallel = 4;
  int tries = 5;
  double pause = 1;
  bool quiet = false;
};

fs::path fetch(const hub::ModelName& name, const PullSettings& settings) {
  const StopOnSignal stopping;
  hub::HubOptions options = hub::HubOptions::of_environment();
  options.tries = settings.tries;
  options.pause = std::chrono::milliseconds(static_cast<int>(settings.pause * 1000));
  options.patience.stopped = [] { return g_stopped != 0; };
  const hub::Hub hub(options);
  const auto cache = hub::Cache::of_environment();
  hub::PullProgress progress;
  const auto begin = Clock::now();
  fs::path folder;
  {
    const ProgressLine line(progress, settings.quiet);
    folder = hub::pull(hub, cache, name, {settings.parallel}, progress);
  }
  if (!settings.quiet) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const double received = static_cast<double>(progress.received);
    std::fputs(
        fmt::format("{}: {} files, {}; {} came in {:.1f} s\n", name.text(), progress.files.load(),
                    bytes_text(static_cast<double>(progress.total)), bytes_text(received), seconds)
            .c_str(),
        stderr);
  }
  return folder;
}

int explain(const char* command, const std::exception& e) {
  std::fprintf(stderr, "quire %s: %s\n", command, failure_text(e).c_str());
  const auto* const failure = dynamic_cast<const Failure*>(&e);
  return failure != nullptr && failure->error().code == ErrorCode::cancelled ? 130 : 1;
}

int published_number_of(const std::string& draft) {
  const int number = read_draft_config(draft).num_speculative_tokens;
  if (number > 0) return number;
  throw Failure(ErrorCode::invalid_argument,
                "EngineConfig::speculative: num_speculative_tokens is missing, and " + draft +
                    "/config.json names none (n_predict, or speculative_tokens in "
                    "speculators_config.proposal_methods)");
}

}  // namespace

std::string model_folder(const std::string& model, bool may_fetch) {
  if (fs::exists(model) || fs::is_symlink(model) || !hub::looks_like_name(model)) return model;
  if (model.substr(0, model.find('@')).ends_with(".gguf")) {
    throw Failure(ErrorCode::not_found, model + ": no such file");
  }
  const auto name = hub::ModelName::parse(model);
  if (const auto found = hub::Cache::of_environment().find(name)) return found->string();
  if (!may_fetch) {
    throw Failure(ErrorCode::not_found, model +
                                            " is neither a folder nor a model that was pulled; "
                                            "quire pull " +
                                            model);
  }
  try {
    return fetch(name, {}).string();
  } catch (const Failure& failure) {
    // a/b where a is a folder here: perhaps a path with a slip in it.
    std::error_code ignored;
    if (!fs::is_directory(fs::path(model).parent_path(), ignored)) throw;
    Error error = failure.error();
    error.detail += "; nor is there a folder or file " + model + " here";
    throw Failure(std::move(error));
  }
}

std::string local_model(const std::string& model) {
  std::string path = model_at(model_folder(model, false));
  if (!fs::exists(path)) throw Failure(ErrorCode::not_found, path + ": no such folder or file");
  return path;
}

int pull_main(int argc, const char* const* argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app(
      "Fetches a model from the Hugging Face Hub into the cache that Python's library has too. "
      "Environment: HF_ENDPOINT, "
      "HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE.",
      "quire pull");
  std::string text;
  PullSettings settings;
  app.add_option("MODEL", text, "org/name[@revision]")->required();
  app.add_option("--parallel", settings.parallel, "Files at a time (4)")->check(CLI::Range(1, 64));
  app.add_option("--tries", settings.tries, "Of something that fails without any progress (5)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--retry-pause", settings.pause, "Seconds before the second try; doubles (1)")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_flag("--quiet", settings.quiet, "Print the folder alone");
  try {
    parse_forgivingly(app, argc, argv);
    std::printf("%s\n", fetch(hub::ModelName::parse(text), settings).c_str());
    return 0;
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const std::exception& e) {
    return explain("pull", e);
  }
}

int models_main(int argc, const char* const* argv) {
  CLI::App app("Models of the Hugging Face cache on this machine.", "quire models");
  try {
    parse_forgivingly(app, argc, argv);
    const auto cache = hub::Cache::of_environment();
    const auto models = cache.list();
    if (models.empty())
      std::fprintf(stderr, "no models in %s; quire pull org/name\n", cache.root().c_str());
    for (const hub::CachedModel& model : models) {
      std::string revisions;
      for (const auto& one : model.revisions) revisions += (revisions.empty() ? "" : ",") + one;
      std::printf("%-50s %10s  %.12s  %-12s %s\n", model.repo.c_str(),
                  bytes_text(static_cast<double>(model.bytes)).c_str(), model.commit.c_str(),
                  revisions.c_str(), model.complete ? "" : "not all of it is here");
    }
    return 0;
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const std::exception& e) {
    return explain("models", e);
  }
}

void find_draft_model(EngineConfig& config, bool may_fetch) {
  std::string& model = config.speculative.model;
  if (model.empty()) return;
  model = model_folder(model, may_fetch);
  std::error_code ignored;
  if (config.speculative.method == DraftMethod::mtp &&
      fs::equivalent(model, config.model.path, ignored))
    model.clear();
  int& number = config.speculative.num_speculative_tokens;
  if (number == 0) number = published_number_of(model);
}

}  // namespace quire
