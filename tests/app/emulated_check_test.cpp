// `quire check --device cuda` with the kernels emulated: every golden model's logits and tokens on
// the CUDA backend.

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
  std::vector<const char*> argv{"quire check", "--device", "cuda"};
  const std::string path = model.string();
  argv.push_back(path.c_str());
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  return check_main(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

TEST_CASE("golden models answer on the emulated CUDA backend as their references do",
          "[app][check][cuda]") {
  // Prompts whole, and in chunks beside others' decodes. A warm-up has as many tokens as a step may
  // have: few.
  const auto flags = GENERATE(values<std::vector<std::string>>({
      {"--dtype", "float32", "--max-num-batched-tokens", "144"},
      {"--dtype", "float32", "--max-num-batched-tokens", "40", "--batch", "6"},
      {"--dtype", "bfloat16", "--max-num-batched-tokens", "64", "--batch", "6"},
  }));
  for (const fs::path& folder : golden_models()) {
    INFO(folder.string());
    CHECK(check(folder, flags) == 0);
  }
}

}  // namespace quire
