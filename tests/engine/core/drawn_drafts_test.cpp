// Drafts that are drawn and verified by rejection sampling: answers are not those without drafts,
// but distributed as they are.

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/engine/core/stepped_engine.h"
#include "tests/support/fake_constraint.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;
using Counts = std::map<Tokens, int>;
constexpr int kRequests = 1200, kTokens = 5, kCompared = 3;
// Of the evaluation set, so that the draft knows such.
const Tokens kPrompt = {1522, 554, 269, 198, 561,  560, 513,  340, 839, 342, 559, 220,
                        24,   24,  18,  13,  1523, 198, 1522, 64,  354, 465, 198};

EngineConfig plain_config() {
  EngineConfig config;
  config.model.path = "models/quire-tiny";
  config.model.max_model_len = 256;
  config.cache.kv_cache_memory_bytes = std::int64_t{32} << 20;
  config.scheduler.max_num_seqs = 8;
  config.cpu_threads = 1;
  return config;
}

EngineConfig with_drafts(DraftSampling sampling) {
  EngineConfig config = plain_config();
  config.speculative = {.method = DraftMethod::eagle3,
                        .num_speculative_tokens = 3,
                        .adaptive = false,
                        .draft_sampling = sampling,
                        .model = "models/drafts/quire-tiny-eagle3"};
  return config;
}

Counts answers_of(SteppedEngine& engine, const SamplingParams& params, std::uint64_t first_seed) {
  for (int i = 0; i < kRequests; ++i) {
    AddRequest request = greedy_request(kPrompt, kTokens);
    request.sampling = params;
    request.sampling.max_tokens = kTokens;
    request.sampling.ignore_eos = true;
    request.sampling.seed = first_seed + static_cast<std::uint64_t>(i);
    engine.add(std::move(request));
    if (i % 100 == 99) engine.run();
  }
  Counts counts;
  for (const auto& [id, output] : engine.outputs) {
    const Tokens& tokens = output.token_ids;
    REQUIRE(tokens.size() == kTokens);
    ++counts[{tokens.begin(), tokens.begin() + kCompared}];
  }
  return counts;
}

// Chi-square of two samples of one size, as a normal variable: above 4 once in thirty thousand
// where both are of one distribution. Rare answers count together.
double misfit(const Counts& a, const Counts& b) {
  std::map<Tokens, std::pair<double, double>> cells;
  for (const auto& [tokens, count] : a) cells[tokens].first += count;
  for (const auto& [tokens, count] : b) cells[tokens].second += count;
  double sum = 0, rare_a = 0, rare_b = 0;
  int degrees = -1;
  const auto add = [&](double x, double y) {
    if (x + y <= 0) return;
    sum += (x - y) * (x - y) / (x + y);
    ++degrees;
  };
  for (const auto& [tokens, both] : cells) {
    if (both.first + both.second >= 10)
      add(both.first, both.second);
    else
      rare_a += both.first, rare_b += both.second;
  }
  add(rare_a, rare_b);
  REQUIRE(degrees > 5);
  const double spread = 2.0 / (9 * degrees);
  return (std::cbrt(sum / degrees) - 1 + spread) / std::sqrt(spread);
}

double share_held(const SteppedEngine& engine) {
  const EngineStats stats = engine.core.stats();
  REQUIRE(stats.draft_tokens > 500);
  return static_cast<double>(stats.accepted_draft_tokens) / static_cast<double>(stats.draft_tokens);
}

TEST_CASE("drafts that are drawn leave the distribution of answers", "[engine][core][drafts]") {
  SamplingParams few;
  few.temperature = 6;
  few.top_k = 8;
  SamplingParams edited;
  edited.temperature = 6;
  edited.top_k = 12;
  edited.top_p = 0.95f;
  edited.min_p = 0.01f;
  edited.repetition_penalty = 1.2f;
  edited.presence_penalty = 0.5f;
  edited.logit_bias = {{20, 3.f}, {41, 2.f}};
  for (const SamplingParams& params : {few, edited}) {
    INFO("temperature " << params.temperature);
    SteppedEngine plain(plain_config()), drawn(with_drafts(DraftSampling::probabilistic)),
        best(with_drafts(DraftSampling::greedy)), other(plain_config());
    const Counts expected = answers_of(plain, params, 1);
    CHECK(misfit(expected, answers_of(drawn, params, 1'000'000)) < 4);
    // As does what is taken as the best.
    CHECK(misfit(expected, answers_of(best, params, 2'000'000)) < 4);
    CHECK(share_held(drawn) > 0.02);
    SamplingParams colder = params;  // what such a test can see
    colder.temperature *= 0.6f;
    CHECK(misfit(expected, answers_of(other, colder, 3'000'000)) > 6);
  }
}

TEST_CASE("greedy answers and constrained ones are those without drafts, drawn or not",
          "[engine][core][drafts]") {
  const BackendFactory backend = [](const EngineConfig& config) {
    EngineBackend made = cpu_backend(config);
    made.compile_constraint = compile_fake;
    return made;
  };
  const auto ask = [](SteppedEngine& engine) {
    AddRequest greedy = greedy_request({20, 21, 22, 23}, 24);
    greedy.sampling.ignore_eos = true;
    greedy.sampling.logprobs = 2;
    engine.add(std::move(greedy));
    AddRequest held = greedy_request({20, 21, 22, 23}, 20);
    held.sampling.temperature = 1;
    held.sampling.seed = 5;
    held.sampling.constraint = ConstraintSpec{.kind = ConstraintKind::choice,
                                              .text = "30 31 32 33 34 35 36|30 31 40 41 42"};
    engine.add(std::move(held));
    while (engine.core.has_work()) engine.step();
    return std::pair(engine.outputs[RequestId{1}].token_ids,
                     engine.outputs[RequestId{2}].token_ids);
  };
  EngineConfig config = plain_config(), drawing = with_drafts(DraftSampling::probabilistic);
  config.model.dtype = drawing.model.dtype = DType::f32;
  SteppedEngine plain(config, backend), drawn(drawing, backend);
  CHECK(ask(plain) == ask(drawn));
}

}  // namespace
}  // namespace quire::test
