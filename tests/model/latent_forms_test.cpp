// The two forms of latent attention in golden models: which tokens take which, and that both are
// the reference's.

#include <catch2/catch.hpp>

#include "app/check/golden.h"
#include "cpu/cpu_ops.h"
#include "model/draft_registry.h"
#include "tests/support/direct_runner.h"
#include "tests/support/golden_folders.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Which rows of a step are expanded, and how many calls attend absorbed; of the first layer.
class CountingOps final : public CpuOps {
 public:
  CountingOps() : CpuOps({.threads = 2}) {}

  std::vector<std::int32_t> expanded;
  std::vector<std::int64_t> absorbed;  // rows of each call

  void begin_step() {
    expanded.clear();
    absorbed.clear();
    layer_of_prompts_ = layer_of_others_ = nullptr;
  }
  void mla_attention(const MlaArgs& args, StreamRef stream) override {
    if (layer_of_others_ == nullptr) layer_of_others_ = args.cache.data();
    if (layer_of_others_ == args.cache.data()) absorbed.push_back(args.seq_lens.extent(0));
    CpuOps::mla_attention(args, stream);
  }
  void mla_prompt_attention(const MlaPromptArgs& args, StreamRef stream) override {
    if (layer_of_prompts_ == nullptr) layer_of_prompts_ = args.cache.data();
    if (layer_of_prompts_ == args.cache.data())
      for (const LatentPrompt& prompt : args.prompts) expanded.push_back(prompt.request);
    CpuOps::mla_prompt_attention(args, stream);
  }

 private:
  const void *layer_of_prompts_ = nullptr, *layer_of_others_ = nullptr;
};

std::vector<fs::path> latent_models() {
  std::vector<fs::path> folders;
  for (const fs::path& folder : golden_models())
    if (read_model_config(folder).mla.kv_lora_rank > 0) folders.push_back(folder);
  return folders;
}

struct Loaded {
  Loaded(const fs::path& folder, const DirectOptions& options)
      : device(make_cpu_device()),
        model(load_model(read_model_config(folder), folder, *device, ops.traits(),
                         {.dtype = options.dtype, .same_bits = options.same_bits})),
        runner(*model, *device, ops, options) {}

  CountingOps ops;
  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  DirectRunner runner;
};

std::vector<TokenId> tokens(std::size_t count, TokenId first) {
  std::vector<TokenId> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back((first + static_cast<TokenId>(i) * 7) % 300);
  return all;
}

using Rows = std::vector<std::int32_t>;
using Calls = std::vector<std::int64_t>;

TEST_CASE("prompts are expanded, and what decodes beside them is absorbed", "[model][mla]") {
  REQUIRE_FALSE(latent_models().empty());
  Loaded loaded(latent_models().front(), {});
  DirectRunner& runner = loaded.runner;
  const int a = runner.add_request(60), b = runner.add_request(60), c = runner.add_request(60),
            d = runner.add_request(60);
  const auto step = [&](const std::vector<DirectRunner::Work>& work) {
    loaded.ops.begin_step();
    runner.step(work);
  };
  step({{a, tokens(60, 1)}, {b, tokens(3, 2)}});
  CHECK(loaded.ops.expanded == Rows{0, 1});
  CHECK(loaded.ops.absorbed.empty());
  step({{a, tokens(1, 9)}, {b, tokens(1, 8)}});
  CHECK(loaded.ops.expanded.empty());
  CHECK(loaded.ops.absorbed == Calls{2});
  // A row of drafts, a prompt, one that decodes, a chunk behind cached tokens, few behind many.
  step({{a, tokens(5, 3)}, {c, tokens(50, 4)}, {b, tokens(1, 5)}, {d, tokens(40, 6)}});
  CHECK(loaded.ops.expanded == Rows{1, 3});
  CHECK(loaded.ops.absorbed == Calls{1, 1});
  step({{d, tokens(20, 5)}, {c, tokens(60, 7)}, {a, tokens(1, 1)}});
  CHECK(loaded.ops.expanded == Rows{1});
  CHECK(loaded.ops.absorbed == Calls{1, 1});
}

TEST_CASE("where a token's bits may not depend on its step, all tokens are absorbed",
          "[model][mla]") {
  Loaded loaded(latent_models().front(), {.same_bits = true});
  const int request = loaded.runner.add_request(60);
  loaded.ops.begin_step();
  const auto whole = loaded.runner.step({{request, tokens(60, 1)}});
  CHECK(loaded.ops.expanded.empty());
  CHECK(loaded.ops.absorbed == Calls{1});
  const int again = loaded.runner.add_request(60);
  std::vector<float> parts;
  for (std::size_t at = 0; at < 60; at += 20) {
    const std::vector<TokenId> all = tokens(60, 1);
    const std::vector<TokenId> part(all.begin() + static_cast<std::ptrdiff_t>(at),
                                    all.begin() + static_cast<std::ptrdiff_t>(at + 20));
    const auto logits = loaded.runner.step({{again, part}});
    parts.insert(parts.end(), logits.begin(), logits.end());
  }
  CHECK(parts == whole);
}

// Of MlaPromptArgs::workspace, for few tokens.
std::size_t scratch_of(const ModelConfig& config, const OpsTraits& ops) {
  return ops.latent_prompt_bytes(8, {.heads = config.num_heads,
                                     .latent = config.mla.kv_lora_rank,
                                     .rope = config.mla.qk_rope_head_dim,
                                     .nope = config.mla.qk_nope_head_dim,
                                     .value = config.mla.v_head_dim,
                                     .dtype = DType::f32});
}

TEST_CASE("a model that expands nothing has neither weights nor scratch for it", "[model][mla]") {
  const fs::path folder = latent_models().front();
  const ModelConfig config = read_model_config(folder);
  const Loaded plain(folder, {}), same_bits(folder, {.same_bits = true});
  // Of keys, which are there transposed, too.
  CHECK(plain.model->weight_bytes() - same_bits.model->weight_bytes() ==
        std::size_t{4} *
            static_cast<std::size_t>(config.num_layers * config.num_heads *
                                     config.mla.qk_nope_head_dim * config.mla.kv_lora_rank));
  const std::size_t scratch = scratch_of(config, plain.ops.traits());
  CHECK(plain.model->workspace_bytes(8, 8) > scratch);
  CHECK(same_bits.model->workspace_bytes(8, 8) < scratch);
}

TEST_CASE("a draft model of latent attention has no scratch for prompts", "[model][mla]") {
  const fs::path folder = "tests/data/golden/drafts/mtp-deepseek-v3/target";
  const ModelConfig config = read_model_config(folder);
  const CountingOps ops;
  const auto device = make_cpu_device();
  const LoadOptions options{.dtype = DType::f32, .max_model_len = 64};
  const auto target = load_model(config, folder, *device, ops.traits(), options);
  const auto draft = load_draft(
      {.form = DraftForm::mtp, .directory = folder, .target_config = config, .target = *target},
      *device, ops.traits(), options);
  CHECK(target->workspace_bytes(8, 8) > scratch_of(config, ops.traits()));
  CHECK(draft->workspace_bytes(8, 8) < scratch_of(config, ops.traits()));
}

TEST_CASE("both forms of latent attention give the reference's logits", "[model][golden][mla]") {
  for (const fs::path& folder : latent_models()) {
    INFO(folder.string());
    const Golden golden = read_golden(folder);
    for (const bool same_bits : {false, true}) {
      for (const std::size_t chunk : {1000u, 45u, 33u}) {
        INFO("chunks of " << chunk << (same_bits ? ", absorbed" : ""));
        Loaded loaded(folder, {.same_bits = same_bits});
        for (const GoldenCase& c : golden.cases) {
          INFO("prompt of " << c.prompt.size());
          const int request = loaded.runner.add_request(static_cast<int>(c.prompt.size()));
          std::vector<float> logits;
          for (std::size_t at = 0; at < c.prompt.size(); at += chunk) {
            const auto part =
                loaded.runner.step({{request,
                                     {c.prompt.begin() + static_cast<std::ptrdiff_t>(at),
                                      c.prompt.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                             c.prompt.size(), at + chunk))}}});
            logits.insert(logits.end(), part.begin(), part.end());
          }
          CHECK(distance(logits, c.logits, golden.vocab_size).max_abs <= golden.atol);
          loaded.runner.finish(request);
        }
        CHECK(loaded.ops.expanded.empty() == same_bits);
      }
    }
  }
}

}  // namespace
}  // namespace quire
