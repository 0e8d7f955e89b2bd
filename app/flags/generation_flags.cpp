#include "app/flags/generation_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace quire {
namespace {

constexpr const char* kFlag = "--override-generation-config";
constexpr std::array<std::string_view, 6> kMembers = {
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens"};

void check_members(const std::string& json) {
  const JsonDocument document(json, kFlag);
  for (const auto& [name, value] : document.object().members()) {
    if (std::ranges::find(kMembers, name) != kMembers.end()) continue;
    value.fail(
        "is not supported; what works: temperature, top_p, top_k, min_p, repetition_penalty, "
        "max_new_tokens");
  }
}

}  // namespace

void add_generation_flags(CLI::App& app, GenerationFlags& flags) {
  app.add_option("--generation-config", flags.source,
                 "Defaults of sampling: auto (the model's generation_config.json) or vllm (none)")
      ->check(CLI::IsMember({"auto", "vllm"}));
  app.add_option_function<std::string>(
         kFlag,
         [&flags](const std::string& text) {
           try {
             flags.overrides = read_generation_overrides(text);
           } catch (const Failure& failure) {
             throw CLI::ValidationError(failure.what());
           }
         },
         "Defaults of sampling over those: {\"temperature\": 0.6, \"top_p\": 0.95}; also top_k, "
         "min_p, repetition_penalty, and max_new_tokens, the most that any request gets")
      ->type_name("JSON");
}

GenerationConfig read_generation_overrides(const std::string& json) {
  check_members(json);
  return parse_generation_config(json, kFlag);
}

GenerationConfig generation_config_for(const GenerationFlags& flags, GenerationConfig of_model) {
  GenerationConfig config = flags.source == "vllm" ? GenerationConfig() : std::move(of_model);
  const auto set = [](auto& to, const auto& from) {
    if (from) to = from;
  };
  set(config.temperature, flags.overrides.temperature);
  set(config.top_p, flags.overrides.top_p);
  set(config.top_k, flags.overrides.top_k);
  set(config.min_p, flags.overrides.min_p);
  set(config.repetition_penalty, flags.overrides.repetition_penalty);
  set(config.max_new_tokens, flags.overrides.max_new_tokens);
  return config;
}

}  // namespace quire
