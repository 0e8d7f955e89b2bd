#include "app/flags/generation_flags.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <vector>

#include "app/args/forgiving_args.h"

namespace quire {
namespace {

// The flags of a command line, or why it is refused.
struct Parsed {
  GenerationFlags flags;
  std::string refusal;
};
Parsed parsed(std::vector<const char*> given) {
  Parsed result;
  CLI::App app;
  add_generation_flags(app, result.flags);
  given.insert(given.begin(), "quire");
  try {
    parse_forgivingly(app, static_cast<int>(given.size()), given.data());
  } catch (const CLI::ParseError& error) {
    result.refusal = error.what();
  }
  return result;
}

std::string refusal(const char* json) {
  return parsed({"--override-generation-config", json}).refusal;
}

const GenerationConfig kModel = [] {
  GenerationConfig config;
  config.temperature = 0.7;
  config.top_p = 0.8;
  config.top_k = 20;
  config.max_new_tokens = 64;
  return config;
}();

}  // namespace

TEST_CASE("overrides come over the model's defaults of sampling", "[app][flags]") {
  const auto of_model = generation_config_for({}, kModel);
  CHECK(of_model.temperature == 0.7);
  CHECK(of_model.max_new_tokens == 64);

  const auto given = parsed({"--override-generation-config",
                             R"({"temperature": 0, "min_p": 0.1, "repetition_penalty": 1.1})"});
  CHECK(given.refusal.empty());
  const auto config = generation_config_for(given.flags, kModel);
  CHECK(config.temperature == 0.0);
  CHECK(config.top_p == 0.8);
  CHECK(config.top_k == 20);
  CHECK(config.min_p == 0.1);
  CHECK(config.repetition_penalty == 1.1);

  const auto none = parsed({"--generation-config=vllm", "--override-generation-config.top_p",
                            "0.5", "--override-generation-config.max_new_tokens=9"});
  CHECK(none.refusal.empty());
  const auto alone = generation_config_for(none.flags, kModel);
  CHECK_FALSE(alone.temperature.has_value());
  CHECK(alone.top_p == 0.5);
  CHECK(alone.max_new_tokens == 9);
  CHECK(refusal("{}").empty());
}

TEST_CASE("overrides that mean nothing are refused by name", "[app][flags]") {
  CHECK(refusal(R"({"temprature": 1})").find("temprature: is not supported; what works: ") !=
        std::string::npos);
  CHECK(refusal(R"({"presence_penalty": 1})").find("presence_penalty: is not supported") !=
        std::string::npos);
  CHECK(refusal(R"({"temperature": -1})") ==
        "--override-generation-config: temperature must be from 0 to 100");
  CHECK(refusal(R"({"top_p": 2})").find("top_p must be ") !=
        std::string::npos);
  CHECK(refusal(R"({"max_new_tokens": 0})").find("max_new_tokens") != std::string::npos);
  CHECK(refusal("[1]").find("--override-generation-config") != std::string::npos);
}

}  // namespace quire
