// Decode steps replayed from graphs against the same steps queued launch by launch, on the emulated
// CUDA backend: the same bits.

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "engine/core/engine_core.h"
#include "tests/engine/core/emulated_backend.h"
#include "tests/engine/core/live_engine.h"

namespace quire::test {
namespace {

EngineConfig small_config() {
  EngineConfig config = tiny_config();
  config.device = DeviceKind::cuda;
  config.cpu_threads = 0;
  config.model.max_model_len = 512;
  config.cache.num_gpu_blocks_override = 129;
  config.scheduler.max_num_seqs = 6;
  config.scheduler.max_num_batched_tokens = 64;
  return config;
}

struct Arrival {
  int step;  // of the engine, before which it comes
  int num_prompt, num_output;
  double temperature = 0;
  double presence_penalty = 0;
};

AddRequest request_of(const Arrival& arrival, std::uint64_t id) {
  std::mt19937 rng(static_cast<unsigned>(id));
  AddRequest request;
  request.id = RequestId{id};
  for (int i = 0; i < arrival.num_prompt; ++i)
    request.prompt.push_back(static_cast<TokenId>(rng() % 380));
  request.sampling.max_tokens = arrival.num_output;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = arrival.temperature;
  request.sampling.presence_penalty = arrival.presence_penalty;
  request.sampling.seed = id;
  request.sampling.logprobs = 2;
  return request;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

struct Outcome {
  std::map<std::uint64_t, Answer> answers;
  long num_replays = 0, num_drafting_replays = 0, num_whole_replays = 0;
  std::uint64_t num_steps = 0;
  std::int64_t num_accepted = 0;  // drafts
};

Outcome run(const EngineConfig& config, const std::vector<Arrival>& arrivals) {
  EngineCore engine(config, EngineId{0}, emulated_backend(), [](std::string_view, double) {});
  Outcome outcome;
  const long at_start = engine.runner().graphs().num_replays();  // where drafts are timed
  std::size_t next = 0;
  for (int step = 0; next < arrivals.size() || engine.has_work(); ++step) {
    for (; next < arrivals.size() && arrivals[next].step <= step; ++next)
      engine.add(request_of(arrivals[next], next + 1));
    for (const RequestOutput& output : engine.step().requests) {
      REQUIRE_FALSE(output.error);
      Answer& answer = outcome.answers[output.id.value];
      answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      for (const PositionLogprobs& position : output.logprobs) {
        answer.logprobs.push_back(position.chosen.logprob);
        for (const TokenLogprob& top : position.top) answer.logprobs.push_back(top.logprob);
      }
    }
  }
  outcome.num_replays = engine.runner().graphs().num_replays() - at_start;
  if (config.speculative.uses_draft_model()) {
    outcome.num_drafting_replays = engine.runner().drafting_graphs().num_replays();
    outcome.num_whole_replays = engine.runner().whole_drafting_graphs().num_replays();
  }
  outcome.num_steps = engine.stats().steps;
  outcome.num_accepted = engine.stats().accepted_draft_tokens;
  return outcome;
}

// How many steps of a run in each of the sizes are replayed.
std::vector<long> expect_same_bits(EngineConfig config, const std::vector<Arrival>& arrivals,
                                   const std::vector<std::vector<int>>& capture_sizes) {
  config.graphs.enforce_eager = true;
  const Outcome eager = run(config, arrivals);
  CHECK(eager.num_replays + eager.num_drafting_replays == 0);
  REQUIRE(eager.answers.size() == arrivals.size());
  config.graphs.enforce_eager = false;
  std::vector<long> num_replays;
  for (const std::vector<int>& sizes : capture_sizes) {
    CAPTURE(sizes);
    config.graphs.capture_sizes = sizes;
    const Outcome replayed = run(config, arrivals);
    CHECK(replayed.num_replays > 0);
    CHECK(replayed.num_accepted == eager.num_accepted);
    CHECK((replayed.num_drafting_replays > 0) == config.speculative.uses_draft_model());
    CHECK((replayed.num_whole_replays > 0) == config.speculative.uses_draft_model());
    CHECK((replayed.num_accepted > 0) == (config.speculative.method != DraftMethod::none));
    for (const auto& [id, answer] : eager.answers) {
      CAPTURE(id);
      CHECK(replayed.answers.at(id).tokens == answer.tokens);
      CHECK(replayed.answers.at(id).logprobs == answer.logprobs);
    }
    num_replays.push_back(replayed.num_replays);
  }
  return num_replays;
}

}  // namespace

TEST_CASE("replayed steps follow requests that come, cross blocks and go", "[engine][cuda]") {
  const std::vector<Arrival> arrivals{{0, 5, 30},      {0, 14, 24, 0.8}, {2, 31, 20, 0, 0.5},
                                      {9, 16, 4, 1.2}, {9, 1, 18},       {14, 40, 9}};
  // Up to all tokens; one that pads some steps and is too small for others; those of the default,
  // of which some are kept.
  const std::vector<int> all{1, 2, 4, 8, 16, 64};
  const std::vector<long> num_replays = expect_same_bits(small_config(), arrivals, {all, {3}, {}});
  EngineConfig only_decode = small_config();
  only_decode.graphs.only_decode = true;
  const std::vector<long> without_prompts = expect_same_bits(only_decode, arrivals, {all});
  CHECK(num_replays[0] > num_replays[1]);
  CHECK(num_replays[0] > without_prompts[0]);  // by the steps with prompts
}

TEST_CASE("replayed prompts are cut, shared and continued as queued ones", "[engine][cuda]") {
  EngineConfig config = small_config();
  config.model.path = GENERATE("tests/data/golden/models/phi3-longrope",
                               "models/quire-tiny");
  config.scheduler.max_num_batched_tokens = 32;  // prompts take several steps, all of these replayed
  const std::vector<Arrival> arrivals{{0, 70, 12}, {1, 33, 9, 0.7}, {3, 2, 20},
                                      {6, 70, 3},  {7, 31, 6},      {8, 1, 5, 0, 0.3}};
  expect_same_bits(config, arrivals, {{4, 12, 20, 32}});
}

TEST_CASE("replayed steps carry states, latents and experts on", "[engine][cuda]") {
  EngineConfig config = small_config();
  config.model.path =
      GENERATE("tests/data/golden/models/qwen3-5", "tests/data/golden/models/deepseek-v3",
               "tests/data/golden/models/nemotron-h");
  config.scheduler.max_num_batched_tokens = 128;
  // The last one's prompt has a whole chunk of states.
  expect_same_bits(config, {{0, 5, 20}, {1, 19, 14}, {4, 33, 6}, {8, 80, 4}}, {{4}});
}

TEST_CASE("replayed steps follow a context into its second split", "[engine][cuda]") {
  expect_same_bits(small_config(), {{0, 252, 8}, {4, 3, 5}}, {{2}});
}

// Every step but the last ones, which have room for fewer drafts; and a draft model's passes, all
// of them behind a step that verified as many for each, else those behind the first. A graph of
// four rows pads; the one of a row with one token takes a step that verifies nothing; that of 64
// tokens, where the cache can have one, takes all others, as with prompts.
TEST_CASE("steps that verify drafts are replayed", "[engine][cuda][drafts]") {
  struct Drafter {
    const char* folder;
    DraftMethod method;
  };
  const Drafter drafter = GENERATE(
      Drafter{"eagle3-llama", DraftMethod::eagle3}, Drafter{"mtp-deepseek-v3", DraftMethod::mtp},
      Drafter{"mtp-qwen3-5", DraftMethod::mtp}, Drafter{"eagle-llama", DraftMethod::ngram});
  const std::string folder = std::string("tests/data/golden/drafts/") + drafter.folder;
  CAPTURE(drafter.folder);
  EngineConfig config = small_config();
  config.model.path = folder + "/target";
  config.model.dtype = DType::f32;
  config.model.max_model_len = 128;
  config.scheduler.max_num_batched_tokens = 64;
  config.speculative = {.method = drafter.method, .num_speculative_tokens = 3, .adaptive = false};
  if (drafter.method == DraftMethod::eagle3) config.speculative.model = folder + "/draft";
  if (drafter.method == DraftMethod::ngram)
    config.speculative.prompt_lookup_min = config.speculative.prompt_lookup_max = 1;
  expect_same_bits(config, {{0, 9, 24}, {0, 17, 18, 0.8}, {3, 30, 12}}, {{1, 4}, {1, 4, 64}});
}

}  // namespace quire::test
