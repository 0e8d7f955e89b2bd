// `quire check` end to end: scheduler, KV manager, runner and model against the reference's
// answers.

#include <catch2/catch.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/app/check/run_check.h"
#include "tests/support/golden_folders.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

TEST_CASE("the engine's logits and tokens are the reference's in every setting", "[app][check]") {
  const auto flags = GENERATE(values<std::vector<std::string>>({
      {"--dtype", "float32"},
      {"--dtype", "float32", "--chunk", "1"},
      {"--dtype", "float32", "--chunk", "7", "--batch", "6"},
      {"--dtype", "float32", "--batch", "6", "--max-num-batched-tokens", "16"},
      {"--dtype", "float32", "--batch", "3", "--enable-prefix-caching"},
      {"--dtype", "float32", "--block-size", "32"},
      {"--dtype", "bfloat16", "--batch", "2"},
  }));
  for (const fs::path& folder : golden_models()) {
    INFO(folder.string());
    CHECK(run_check(folder, flags) == 0);
  }
}

// Random weights that send tokens to experts, or mix few latents, make more of eight bits than a
// lead holds; what such models compute is held to a cache of rounded floats (fp8_cache_test).
TEST_CASE("over an fp8 cache tokens with a safe lead are the reference's", "[app][check][fp8]") {
  const auto flags = GENERATE(values<std::vector<std::string>>({
      {"--dtype", "float32", "--kv-cache-dtype", "fp8"},
      {"--dtype", "float32", "--kv-cache-dtype", "fp8", "--chunk", "7", "--batch", "6"},
      {"--dtype", "float32", "--kv-cache-dtype", "fp8_e4m3", "--enable-prefix-caching"},
  }));
  const std::string model = GENERATE("nemotron-h", "phi3-longrope", "qwen3-5");
  INFO(model);
  CHECK(run_check("tests/data/golden/models/" + model, flags) == 0);
}

TEST_CASE("another model's answers are a miss", "[app][check]") {
  const fs::path models = "tests/data/golden/models";
  CHECK(run_check(models / "qwen3-5",
                  {"--golden", (models / "deepseek-v3").string(), "--dtype", "float32"}) == 1);
}

TEST_CASE("a check that cannot run says so", "[app][check]") {
  CHECK(run_check("tests/data/no-such-model", {}) == 2);
  CHECK(run_check("models/quire-tiny", {}) == 2);  // no golden.json
  CHECK(run_check("models/quire-tiny", {"--golden", "tests/data/golden/models/qwen3-5"}) == 2);
  CHECK(run_check("tests/data/golden/models/qwen3-5", {"--chunk", "-1"}) == 2);
}

}  // namespace
}  // namespace quire
