// `quire check` on reference drafts: the draft model's logits, what it proposes, and whole greedy
// runs, through scheduler, KV manager and runner.

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/app/check/run_check.h"
#include "tests/support/golden_folders.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

TEST_CASE("drafts are the reference's however their context was reached", "[app][check][drafts]") {
  const auto flags = GENERATE(values<std::vector<std::string>>({
      {"--dtype", "float32"},
      {"--dtype", "float32", "--chunk", "1"},
      {"--dtype", "float32", "--chunk", "7", "--batch", "6"},
      {"--dtype", "float32", "--batch", "6", "--max-num-batched-tokens", "16"},
      {"--dtype", "float32", "--batch", "3", "--enable-prefix-caching"},
      {"--dtype", "float32", "--block-size", "32"},
      {"--dtype", "bfloat16", "--batch", "2"},
  }));
  for (const fs::path& folder : golden_drafts()) {
    INFO(folder.string());
    auto own = flags;
    // One context of it stands on a tie that bfloat16 does not resolve: weights changed by up to
    // 2⁻⁹ at random, in float32, move its logits by 9 to 11 in three of eight tries.
    if (folder.filename() == "mtp-glm4-moe") std::ranges::replace(own, "bfloat16", "float16");
    CHECK(run_check(folder, own) == 0);
  }
}

}  // namespace
}  // namespace quire
