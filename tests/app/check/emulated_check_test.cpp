// `quire check --device cuda` with the kernels emulated: every golden model's logits and tokens on
// the CUDA backend.

#include <catch2/catch.hpp>

#include "tests/app/check/run_check.h"
#include "tests/support/golden_folders.h"

namespace quire {

TEST_CASE("golden models answer on the emulated CUDA backend as their references do",
          "[app][check][cuda]") {
  // Prompts whole, and in chunks beside others' decodes. A warm-up has as many tokens as a step may
  // have: few.
  const std::vector<std::vector<std::string>> settings = {
      {"--dtype", "float32", "--max-num-batched-tokens", "144"},
      {"--dtype", "float32", "--max-num-batched-tokens", "40", "--batch", "6"},
      {"--dtype", "bfloat16", "--max-num-batched-tokens", "64", "--batch", "6"},
  };
  // An emulation is slow: of many models each takes one setting, in turn.
  constexpr std::size_t kFew = 7;
  const std::vector<std::filesystem::path> folders = golden_models();
  for (std::size_t i = 0; i < folders.size(); ++i) {
    for (std::size_t s = 0; s < settings.size(); ++s) {
      if (folders.size() > kFew && i % settings.size() != s) continue;
      std::vector<std::string> flags = settings[s];
      flags.insert(flags.end(), {"--device", "cuda"});
      INFO(folders[i].string() << ", setting " << s);
      CHECK(run_check(folders[i], flags) == 0);
    }
  }
}

TEST_CASE("packed weights answer on the emulated CUDA backend as their references do",
          "[app][check][cuda][packed]") {
  // Prompts in chunks of more rows than a step of few has, beside others' decodes.
  for (const char* model : {"awq-int4", "ct-int4", "gptq-int4"}) {
    for (const char* dtype : {"bfloat16", "float16"}) {
      INFO(model << " " << dtype);
      CHECK(run_check(std::filesystem::path("tests/data/golden/quantized") / model,
                      {"--device", "cuda", "--dtype", dtype, "--max-num-batched-tokens", "64",
                       "--batch", "6"}) == 0);
    }
  }
}

// Of 64 tokens each, which none of the settings above has room for beside others' decodes.
TEST_CASE("prompts in chunks leave the states that their references have on emulated CUDA",
          "[app][check][cuda][states]") {
  for (const std::filesystem::path& folder : golden_models()) {
    const std::string name = folder.filename().string();
    const auto is = [&](const char* prefix) { return name.starts_with(prefix); };
    if (!is("qwen3-5") && !is("qwen3-next") && !is("granite-hybrid") && !is("nemotron-h")) continue;
    for (const char* dtype : {"bfloat16", "float16"}) {
      for (const char* tokens : {"96", "192"}) {
        INFO(name << ", " << dtype << ", steps of " << tokens);
        CHECK(run_check(folder, {"--device", "cuda", "--dtype", dtype, "--max-num-batched-tokens",
                                 tokens, "--batch", "6"}) == 0);
      }
    }
  }
}

TEST_CASE("over an fp8 cache tokens with a safe lead are the reference's on emulated CUDA",
          "[app][check][cuda][fp8]") {
  for (const char* model : {"nemotron-h", "phi3-longrope", "qwen3-5"}) {
    INFO(model);
    CHECK(run_check(std::filesystem::path("tests/data/golden/models") / model,
                    {"--device", "cuda", "--dtype", "float32", "--kv-cache-dtype", "fp8",
                     "--max-num-batched-tokens", "64", "--batch", "6"}) == 0);
  }
}

}  // namespace quire
