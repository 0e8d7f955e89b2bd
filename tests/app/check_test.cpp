// `quire check` end to end: scheduler, KV manager, runner and model against the reference's
// answers.

#include <catch2/catch.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "app/check_main.h"
#include "tests/support/golden_folders.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

int check(const fs::path& model, std::vector<std::string> flags) {
  std::vector<const char*> argv{"quire check"};
  const std::string path = model.string();
  argv.push_back(path.c_str());
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  return check_main(static_cast<int>(argv.size()), argv.data());
}

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
    CHECK(check(folder, flags) == 0);
  }
}

TEST_CASE("another model's answers are a miss", "[app][check]") {
  const fs::path models = "tests/data/golden/models";
  CHECK(check(models / "qwen3-5",
              {"--golden", (models / "deepseek-v3").string(), "--dtype", "float32"}) == 1);
}

TEST_CASE("a check that cannot run says so", "[app][check]") {
  CHECK(check("tests/data/no-such-model", {}) == 2);
  CHECK(check("models/quire-tiny", {}) == 2);  // no golden.json
  CHECK(check("models/quire-tiny", {"--golden", "tests/data/golden/models/qwen3-5"}) == 2);
  CHECK(check("tests/data/golden/models/qwen3-5", {"--chunk", "-1"}) == 2);
}

}  // namespace
}  // namespace quire
