// Every golden model against its reference: full logits and greedy tokens in float32, in one shot,
// in chunks and batched; bfloat16 by its distance in distribution.

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "app/check/golden.h"
#include "cpu/cpu_backend.h"
#include "tests/support/direct_runner.h"
#include "tests/support/golden_folders.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

struct Loaded {
  Loaded(const fs::path& folder, DirectOptions options)
      : config(read_model_config(folder)),
        device(make_cpu_device()),
        ops(make_cpu_ops({.threads = 2})),
        model(load_model(config, folder, *device, ops->traits(), {.dtype = options.dtype})),
        runner(*model, *device, *ops, options) {
    // Published models are read whole.
    for (const std::string& note : model->notes()) CHECK_THAT(note, !Catch::Contains("not read"));
  }

  ModelConfig config;
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  DirectRunner runner;
};

std::vector<TokenId> slice(const std::vector<TokenId>& tokens, std::size_t begin, std::size_t n) {
  const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(std::min(begin, tokens.size()));
  return {from,
          from + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(n), tokens.end() - from)};
}

// The logits of a prompt, fed `chunk` tokens at a time.
std::vector<float> prefill(DirectRunner& runner, int request, const std::vector<TokenId>& prompt,
                           std::size_t chunk) {
  std::vector<float> logits;
  for (std::size_t at = 0; at < prompt.size(); at += chunk) {
    const auto part = runner.step({{request, slice(prompt, at, chunk)}});
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

TokenId last_choice(const std::vector<float>& logits, int vocab) {
  return argmax(std::span(logits).last(static_cast<std::size_t>(vocab)));
}

std::vector<TokenId> continue_greedily(DirectRunner& runner, int request, TokenId first,
                                       std::size_t count) {
  std::vector<TokenId> tokens;
  for (TokenId token = first; tokens.size() < count;) {
    tokens.push_back(token);
    token = last_choice(runner.step({{request, {token}}}), runner.vocab_size());
  }
  return tokens;
}

TEST_CASE("float32 logits and greedy tokens are the reference's, whatever the chunks",
          "[model][golden]") {
  for (const fs::path& folder : golden_models()) {
    INFO(folder.string());
    const Golden golden = read_golden(folder);
    for (const std::size_t chunk : {1000u, 33u, 7u, 1u}) {
      INFO("chunks of " << chunk);
      Loaded loaded(folder, {.page_padding = chunk % 2 ? 4096u : 0u, .move_state = chunk == 7});
      for (const GoldenCase& c : golden.cases) {
        INFO("prompt of " << c.prompt.size());
        const int request = loaded.runner.add_request(static_cast<int>(c.prompt.size()));
        const auto logits = prefill(loaded.runner, request, c.prompt, chunk);
        const LogitDistance d = distance(logits, c.logits, golden.vocab_size);
        CHECK(d.max_abs <= golden.atol);
        const TokenId first = last_choice(logits, golden.vocab_size);
        CHECK(continue_greedily(loaded.runner, request, first, c.greedy.size()) == c.greedy);
        loaded.runner.finish(request);
      }
    }
  }
}

// Greedy answers of all cases together: prompts in chunks of different lengths beside others'
// decodes.
std::vector<std::vector<TokenId>> answer_together(DirectRunner& runner, const Golden& golden) {
  struct Running {
    int request;
    std::size_t fed = 0;
    std::vector<TokenId> tokens = {};
  };
  std::vector<Running> running;
  for (const GoldenCase& c : golden.cases) {
    running.push_back({runner.add_request(static_cast<int>(c.prompt.size()))});
  }
  for (;;) {
    std::vector<DirectRunner::Work> work;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < running.size(); ++i) {
      Running& r = running[i];
      const GoldenCase& c = golden.cases[i];
      if (r.fed < c.prompt.size()) {
        work.push_back({r.request, slice(c.prompt, r.fed, 5 + 6 * i)});
        r.fed += work.back().tokens.size();
      } else if (r.tokens.size() < c.greedy.size()) {
        work.push_back({r.request, {r.tokens.back()}});
      } else {
        continue;
      }
      which.push_back(i);
    }
    if (work.empty()) break;
    const auto logits = runner.step(work);
    const auto vocab = static_cast<std::size_t>(golden.vocab_size);
    std::size_t row = 0;
    for (std::size_t w = 0; w < work.size(); ++w) {
      row += work[w].tokens.size();
      Running& r = running[which[w]];
      if (r.fed < golden.cases[which[w]].prompt.size()) continue;
      r.tokens.push_back(argmax(std::span(logits).subspan((row - 1) * vocab, vocab)));
    }
  }
  std::vector<std::vector<TokenId>> answers;
  for (Running& r : running) answers.push_back(std::move(r.tokens));
  return answers;
}

TEST_CASE("a request's answer does not depend on what else is in the batch", "[model][golden]") {
  for (const fs::path& folder : golden_models()) {
    INFO(folder.string());
    const Golden golden = read_golden(folder);
    Loaded loaded(folder, {.move_state = true});
    const auto answers = answer_together(loaded.runner, golden);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      INFO("prompt of " << golden.cases[i].prompt.size());
      CHECK(answers[i] == golden.cases[i].greedy);
    }
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// No reference for these: what one shot computes, chunks must compute too.
TEST_CASE("options without a golden are consistent with dummy weights", "[model]") {
  struct Case {
    const char* name;
    const char* folder;
    const char* from;
    const char* to;
  };
  const auto c = GENERATE(values<Case>({
      {"latent experts", "nemotron-h", "\"moe_latent_size\": null", "\"moe_latent_size\": 16"},
      {"biases", "nemotron-h", "\"use_bias\": false", "\"use_bias\": true"},
      {"a narrow state", "nemotron-h", "\"ssm_state_size\": 16", "\"ssm_state_size\": 24"},
      {"another conv", "qwen3-5", "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3"},
      {"all heads rotated", "qwen3-5", "\"partial_rotary_factor\": 0.25",
       "\"partial_rotary_factor\": 1.0"},
      {"full-rank queries", "deepseek-v3", "\"q_lora_rank\": 24", "\"q_lora_rank\": null"},
      {"rope in halves", "deepseek-v3", "\"rope_interleave\": true", "\"rope_interleave\": false"},
      {"a window", "phi3-longrope", "\"sliding_window\": null", "\"sliding_window\": 24"},
  }));
  INFO(c.name);
  const fs::path file = fs::path("tests/data/golden/models") / c.folder / "config.json";
  std::ifstream in(file);
  std::string json(std::istreambuf_iterator<char>(in), {});
  const ModelConfig config = parse_model_config(replaced(json, c.from, c.to), file);
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 1});
  const auto model = load_model(config, "nowhere", *device, ops->traits(),
                                {.dtype = DType::f32, .load_format = LoadFormat::dummy});
  DirectRunner runner(*model, *device, *ops, {.move_state = true});
  std::vector<TokenId> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(i * 7 % 300);
  const auto whole = prefill(runner, runner.add_request(40), prompt, 40);
  const auto parts = prefill(runner, runner.add_request(40), prompt, 9);
  const LogitDistance d = distance(parts, whole, model->vocab_size());
  CHECK(d.max_abs < 1e-3);
  CHECK(*std::max_element(whole.begin(), whole.end()) > 0.1f);
}

TEST_CASE("bfloat16 is as near to float32 as the reference's own bfloat16", "[model][golden]") {
  for (const fs::path& folder : golden_models()) {
    INFO(folder.string());
    const Golden golden = read_golden(folder);
    if (golden.kl_of_reference_bf16 == 0.0) continue;
    const GoldenCase& c = *std::max_element(
        golden.cases.begin(), golden.cases.end(),
        [](const auto& a, const auto& b) { return a.prompt.size() < b.prompt.size(); });
    Loaded loaded(folder, {.dtype = DType::bf16});
    const int request = loaded.runner.add_request(static_cast<int>(c.prompt.size()));
    const auto logits = prefill(loaded.runner, request, c.prompt, c.prompt.size());
    CHECK(distance(logits, c.logits, golden.vocab_size).mean_kl <=
          1.5 * golden.kl_of_reference_bf16);
  }
}

}  // namespace
}  // namespace quire
