#include "app/flags/graph_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "app/flags/compilation_json.h"
#include "engine/capture_sizes.h"
#include "engine/size_text.h"

namespace quire {
namespace {

constexpr const char* kEager = "--enforce-eager";
constexpr const char* kSizes = "--cudagraph-capture-sizes";
constexpr const char* kMost = "--max-cudagraph-capture-size";
constexpr const char* kCompilation = "--compilation-config";

CompilationConfig compilation_of(const std::string& json) {
  auto parsed = parse_compilation_config(json);
  if (parsed.has_error()) throw CLI::ValidationError(kCompilation, parsed.error().detail);
  return std::move(*parsed);
}

// Whether sizes say anything: as in vLLM they do not where there are no graphs.
bool takes_sizes(const EngineConfig& config, const std::string& flag) {
  if (config.graphs.enforce_eager) return false;
  if (!config.graphs.capture_sizes.empty() || config.graphs.max_capture_size > 0)
    throw CLI::ValidationError(flag,
                               std::string("says other sizes than ") + kSizes + " or " + kMost);
  return true;
}

// vLLM's may be above what a step has room for.
void take_sizes(EngineConfig& config, const std::string& flag, std::vector<int> sizes) {
  if (!takes_sizes(config, flag)) return;
  for (int& size : sizes) size = std::min(size, config.scheduler.max_num_batched_tokens);
  config.graphs.capture_sizes = std::move(sizes);
}

void take_most(EngineConfig& config, const std::string& flag, int most) {
  if (most == 0) {
    config.graphs.enforce_eager = true;
  } else if (takes_sizes(config, flag)) {
    config.graphs.max_capture_size = most;
  }
}

void forget_sizes(EngineConfig& config) {
  config.graphs.capture_sizes.clear();
  config.graphs.max_capture_size = 0;
}

void take_compilation(EngineConfig& config, const std::string& json) {
  const CompilationConfig compilation = compilation_of(json);
  if (compilation.no_graphs) {
    config.graphs.enforce_eager = true;
    forget_sizes(config);
    return;
  }
  config.graphs.only_decode = compilation.only_decode;
  if (!compilation.capture_sizes.empty()) {
    std::vector<int> sizes = compilation.capture_sizes;
    const int most = compilation.max_capture_size.value_or(std::ranges::max(sizes));
    std::erase_if(sizes, [most](int size) { return size > most; });
    if (sizes.empty())
      throw CLI::ValidationError(kCompilation, "all sizes are above max_cudagraph_capture_size");
    take_sizes(config, kCompilation, std::move(sizes));
  } else if (compilation.max_capture_size) {
    take_most(config, kCompilation, *compilation.max_capture_size);
  }
}

int most_of(const std::string& text) {
  const auto count = parse_count(text);
  if (count.has_error()) throw CLI::ValidationError(kMost, count.error().detail);
  return static_cast<int>(std::clamp<std::int64_t>(*count, 0, std::numeric_limits<int>::max()));
}

}  // namespace

void add_graph_flags(CLI::App& app, EngineConfig& config) {
  app.add_flag(kEager, config.graphs.enforce_eager,
               "Use no CUDA graphs: the host queues each launch of every step");
  app.add_option(kSizes, config.graphs.capture_sizes,
                 "Tokens per step for which steps are captured: 1,2,4,8 (default: decode steps up to "
                 "--max-num-seqs; those with prompts up to 256, where that is faster)")
      ->delimiter(',');
  app.add_option_function<std::string>(
         kMost, [&config](const std::string& text) { take_most(config, kMost, most_of(text)); },
         "Capture the default sizes up to this one; 0: none")
      ->type_name("N")
      ->excludes(kSizes);
  app.add_option_function<std::string>(
         kCompilation, [&config](const std::string& json) { take_compilation(config, json); },
         "vLLM's JSON object: cudagraph_mode NONE is --enforce-eager, FULL_DECODE_ONLY captures no "
         "steps with prompts, and its sizes are those of the flags above; nothing is compiled")
      ->type_name("JSON");
}

std::string forget_idle_sizes(const CLI::App& app, EngineConfig& config, DeviceKind device) {
  if (device != DeviceKind::cpu) return {};
  const bool only_decode = std::exchange(config.graphs.only_decode, false);
  const bool has_sizes =
      !config.graphs.capture_sizes.empty() || config.graphs.max_capture_size > 0;
  if (!has_sizes || app.count(kSizes) > 0)
    return only_decode ? std::string(kCompilation) + ".cudagraph_mode" : std::string();
  forget_sizes(config);
  return app.count(kMost) > 0 ? kMost : std::string(kCompilation) + ".cudagraph_capture_sizes";
}

std::vector<std::string> members_without_effect(const CLI::App& app) {
  std::vector<std::string> members;
  const CLI::Option* compilation = app.get_option(kCompilation);
  if (compilation->count() == 0) return members;
  for (const std::string& member : compilation_of(compilation->results().back()).without_effect)
    members.push_back(std::string(kCompilation) + "." + member);
  return members;
}

}  // namespace quire
