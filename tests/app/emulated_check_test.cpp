// `quire check --device cuda` with the kernels emulated: every golden model's logits and tokens on
// the CUDA backend.

#include <catch2/catch.hpp>

#include "tests/app/run_check.h"
#include "tests/support/golden_folders.h"

namespace quire {

TEST_CASE("golden models answer on the emulated CUDA backend as their references do",
          "[app][check][cuda]") {
  // Prompts whole, and in chunks beside others' decodes. A warm-up has as many tokens as a step may
  // have: few.
  auto flags = GENERATE(values<std::vector<std::string>>({
      {"--dtype", "float32", "--max-num-batched-tokens", "144"},
      {"--dtype", "float32", "--max-num-batched-tokens", "40", "--batch", "6"},
      {"--dtype", "bfloat16", "--max-num-batched-tokens", "64", "--batch", "6"},
  }));
  flags.insert(flags.end(), {"--device", "cuda"});
  for (const std::filesystem::path& folder : golden_models()) {
    INFO(folder.string());
    CHECK(run_check(folder, flags) == 0);
  }
}

}  // namespace quire
