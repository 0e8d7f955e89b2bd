// `quire check --device cuda` with the kernels emulated: what the draft models of the references
// propose on the CUDA backend, and whole runs with them, which replay graphs of several tokens for
// each row.

#include <catch2/catch.hpp>

#include "tests/app/check/run_check.h"
#include "tests/support/golden_folders.h"

namespace quire {

// An emulation is slow: each pair takes one setting, in turn.
TEST_CASE("draft models propose on the emulated CUDA backend what their references do",
          "[app][check][cuda][drafts]") {
  const std::vector<std::vector<std::string>> settings = {
      {"--dtype", "float32", "--batch", "6"},
      {"--dtype", "float32", "--batch", "3", "--chunk", "7"},
      {"--dtype", "bfloat16", "--batch", "4", "--enable-prefix-caching"},
  };
  const std::vector<std::filesystem::path> folders = golden_drafts();
  for (std::size_t i = 0; i < folders.size(); ++i) {
    std::vector<std::string> flags = settings[i % settings.size()];
    flags.insert(flags.end(), {"--device", "cuda", "--max-num-batched-tokens", "64"});
    INFO(folders[i].string() << ", setting " << i % settings.size());
    CHECK(run_check(folders[i], flags) == 0);
  }
}

}  // namespace quire
