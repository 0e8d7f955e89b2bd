#include "load/bench_serve.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "load/options.h"

namespace quire::load {
namespace {

[[noreturn]] void refuse(std::string what) {
  throw Failure(ErrorCode::invalid_argument, std::move(what));
}

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    parts.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

// openai and vllm are the ones that complete a text, as there.
bool completes(const BenchServe& flags, bool completes) {
  constexpr std::string_view kChat = "/v1/chat/completions", kText = "/v1/completions";
  if (flags.backend == "openai-chat") {
    completes = false;
  } else if (flags.backend == "openai" || flags.backend == "vllm") {
    completes = true;
  } else if (!flags.backend.empty()) {
    refuse(
        fmt::format("--backend {}: quire-load speaks openai-chat, openai and vllm", flags.backend));
  }
  if (flags.endpoint.empty()) return completes;
  if (flags.endpoint != kChat && flags.endpoint != kText)
    refuse(fmt::format("--endpoint {}: quire-load asks {} or {}", flags.endpoint, kChat, kText));
  const bool asks_text = flags.endpoint == kText;
  if (!flags.backend.empty() && asks_text != completes) {
    refuse(fmt::format(
        "--endpoint {} does not go with --backend {}: openai-chat asks {}, openai and vllm {}",
        flags.endpoint, flags.backend, kChat, kText));
  }
  return asks_text;
}

void check_dataset(const BenchServe& flags, const Options& options) {
  const std::string& name = flags.dataset;
  const bool has_file = !options.workload.prompts.empty();
  if (name.empty()) return;
  if (name == "random") {
    if (has_file) refuse("--dataset-name random makes its prompts: without --dataset-path");
  } else if (name == "sharegpt" || name == "custom") {
    if (!has_file) refuse(fmt::format("--dataset-name {} needs a --dataset-path", name));
  } else {
    refuse(fmt::format(
        "--dataset-name {}: quire-load has random (with --random-prefix-len for a text that all "
        "share), and sharegpt and custom with a --dataset-path",
        name));
  }
}

void set_goodput(const BenchServe& flags, Options& options) {
  for (const std::string_view one : flags.goodput) {
    const auto colon = std::min(one.find(':'), one.size());
    const auto name = one.substr(0, colon), text = one.substr(std::min(colon + 1, one.size()));
    double* const level = name == "ttft"   ? &options.slo_ttft_ms
                          : name == "tpot" ? &options.slo_tpot_ms
                          : name == "e2el" ? &options.slo_e2e_ms
                                           : nullptr;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size() && value > 0;
    if (level == nullptr || !is_number)
      refuse(
          fmt::format("--goodput {}: pairs such as ttft:500 are expected, of ttft, tpot and e2el, "
                      "in milliseconds",
                      one));
    *level = value;
  }
}

// All of them are in every report.
void check_report(const BenchServe& flags) {
  constexpr std::array<std::string_view, 4> kMetrics{"ttft", "tpot", "itl", "e2el"};
  constexpr std::array<std::string_view, 5> kPercentiles{"50", "90", "95", "99", "99.9"};
  for (const auto one : parts_of(flags.metrics)) {
    if (std::ranges::find(kMetrics, one) == kMetrics.end())
      refuse(fmt::format("--percentile-metrics {}: ttft, tpot, itl and e2el are reported", one));
  }
  for (const auto one : parts_of(flags.percentiles)) {
    if (std::ranges::find(kPercentiles, one) == kPercentiles.end())
      refuse(fmt::format("--metric-percentiles {}: the report has 50, 90, 95, 99 and 99.9", one));
  }
}

}  // namespace

void add_bench_serve_flags(CLI::App& app, BenchServe& flags) {
  constexpr const char* kGroup = "As in vLLM's bench serve";
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(kGroup);
  };
  add("--backend", flags.backend, "openai-chat, or openai or vllm: --completions");
  add("--endpoint", flags.endpoint, "/v1/chat/completions, or /v1/completions: --completions");
  add("--host", flags.host, "With --port: the server, instead of --url");
  add("--port", flags.port, "See --host")->check(CLI::Range(1, 65535));
  add("--dataset-name", flags.dataset, "random, or sharegpt or custom with --dataset-path");
  add("--served-model-name", flags.served_name, "--model, where that is a folder there");
  add("--goodput", flags.goodput, "Service levels, as ttft:500 tpot:50 e2el:9000, in milliseconds")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1, 3);
  add("--result-filename", flags.result_file, "--json");
  add("--result-dir", flags.result_folder, "Folder of --result-filename");
  app.add_flag("--save-result", flags.save_result,
               "--json, as quire-load.json where nothing names it")
      ->group(kGroup);
  add("--percentile-metrics", flags.metrics,
      "Of ttft, tpot, itl and e2el: all are reported anyway");
  add("--metric-percentiles", flags.percentiles,
      "Of 50, 90, 95, 99 and 99.9: all are reported anyway");
  app.add_flag("--trust-remote-code", flags.trusts_code, "Changes nothing: no code is loaded")
      ->group(kGroup);
}

void apply(const BenchServe& flags, Options& options) {
  WorkloadOptions& workload = options.workload;
  workload.completions = completes(flags, workload.completions);
  check_dataset(flags, options);
  set_goodput(flags, options);
  check_report(flags);
  if (!flags.host.empty() || flags.port > 0) {
    const std::string host = flags.host.empty() ? "127.0.0.1" : flags.host;
    options.urls = {fmt::format("http://{}:{}", host, flags.port > 0 ? flags.port : 8000)};
  }
  if (!flags.served_name.empty()) workload.model = flags.served_name;
  if (flags.save_result || !flags.result_file.empty()) {
    const std::string file = flags.result_file.empty() ? "quire-load.json" : flags.result_file;
    options.json_file = (std::filesystem::path(flags.result_folder) / file).string();
    std::error_code error;
    if (!flags.result_folder.empty())
      std::filesystem::create_directories(flags.result_folder, error);
    if (error) refuse(fmt::format("--result-dir {}: {}", flags.result_folder, error.message()));
  } else if (!flags.result_folder.empty()) {
    refuse("--result-dir needs --save-result");
  }
}

}  // namespace quire::load
