// Requests that share a prompt, on the emulated CUDA backend: their steps read it once.

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "engine/core/engine_core.h"
#include "tests/engine/core/emulated_backend.h"
#include "tests/engine/core/live_engine.h"

namespace quire::test {
namespace {

constexpr int kShared = 530;  // 33 blocks, and two tokens of the next

EngineConfig small_config() {
  EngineConfig config = tiny_config();
  config.device = DeviceKind::cuda;
  config.cpu_threads = 0;
  config.cache.num_gpu_blocks_override = 200;
  config.scheduler.max_num_seqs = 12;
  return config;
}

struct Arrival {
  int step;  // of the engine, before which it comes
  int num_shared, num_own, num_output;
};

AddRequest request_of(const Arrival& arrival, std::uint64_t id) {
  AddRequest request;
  request.id = RequestId{id};
  std::mt19937 shared(7), own(static_cast<unsigned>(id));
  for (int i = 0; i < arrival.num_shared; ++i)
    request.prompt.push_back(static_cast<TokenId>(shared() % 380));
  for (int i = 0; i < arrival.num_own; ++i)
    request.prompt.push_back(static_cast<TokenId>(own() % 380));
  request.sampling.max_tokens = arrival.num_output;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = 0;
  request.sampling.logprobs = 2;
  return request;
}

struct Token {
  TokenId id;
  float best, second;  // log-probabilities
  bool operator==(const Token&) const = default;
};

struct Outcome {
  std::map<std::uint64_t, std::vector<Token>> answers;
  EngineStats stats;
  long num_replays = 0;
};

Outcome run(const EngineConfig& config, const std::vector<Arrival>& arrivals) {
  EngineCore engine(config, EngineId{0}, emulated_backend(), [](std::string_view, double) {});
  Outcome outcome;
  std::size_t next = 0;
  for (int step = 0; next < arrivals.size() || engine.has_work(); ++step) {
    for (; next < arrivals.size() && arrivals[next].step <= step; ++next)
      engine.add(request_of(arrivals[next], next + 1));
    for (const RequestOutput& output : engine.step().requests) {
      REQUIRE_FALSE(output.error);
      for (std::size_t i = 0; i < output.token_ids.size(); ++i) {
        const auto& top = output.logprobs[i].top;
        outcome.answers[output.id.value].push_back(
            {output.token_ids[i], top[0].logprob, top[1].logprob});
      }
    }
  }
  outcome.stats = engine.stats();
  outcome.num_replays = engine.runner().graphs().num_replays();
  return outcome;
}

// Until an answer takes another way where two tokens are all but equally likely.
void expect_close(const Outcome& got, const Outcome& want) {
  constexpr float kNear = 0.05f;
  REQUIRE(got.answers.size() == want.answers.size());
  for (const auto& [id, answer] : want.answers) {
    CAPTURE(id);
    REQUIRE(got.answers.at(id).size() == answer.size());
    for (std::size_t i = 0; i < answer.size(); ++i) {
      const Token &one = got.answers.at(id)[i], &other = answer[i];
      CHECK(std::abs(one.best - other.best) < kNear);
      if (one.id == other.id) continue;
      CHECK(other.best - other.second < 2 * kNear);
      break;
    }
  }
}

// They come and go; one is another's alone, and one parts early.
const std::vector<Arrival> kArrivals{
    {0, kShared, 3, 24}, {3, kShared, 5, 14}, {3, kShared, 17, 6}, {3, kShared, 1, 12},
    {3, 300, 9, 9},      {4, kShared, 2, 16}, {5, 0, 25, 12},      {7, kShared, 30, 9},
    {9, kShared, 4, 10}};

}  // namespace

TEST_CASE("requests that share a prompt answer as those that do not", "[engine][cuda][prefixes]") {
  EngineConfig config = small_config();
  config.cache.cache_dtype = GENERATE(std::optional<DType>(), std::optional(DType::fp8_e4m3));
  config.graphs.enforce_eager = true;
  const Outcome eager = run(config, kArrivals);
  CHECK(eager.stats.shared_prefix_tokens > 10 * 3 * 512);
  EngineConfig without_cache = config;
  without_cache.cache.enable_prefix_caching = false;
  const Outcome apart = run(without_cache, kArrivals);
  CHECK(apart.stats.shared_prefix_tokens == 0);
  expect_close(eager, apart);
  config.graphs.enforce_eager = false;
  // Of padding rows each has a tile, and how contexts are cut follows all tiles of a step.
  config.graphs.capture_sizes = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const Outcome replayed = run(config, kArrivals);
  CHECK(replayed.num_replays > 0);
  CHECK(replayed.stats.shared_prefix_tokens == eager.stats.shared_prefix_tokens);
  CHECK(replayed.answers == eager.answers);  // the same bits
}

TEST_CASE("requests with drafts share a prompt", "[engine][cuda][prefixes]") {
  EngineConfig config = small_config();
  config.speculative.method = DraftMethod::eagle;
  config.speculative.model = "models/drafts/quire-tiny-eagle";
  config.speculative.num_speculative_tokens = 3;
  config.speculative.adaptive = false;
  const Outcome drafted = run(config, kArrivals);
  CHECK(drafted.num_replays > 0);
  CHECK(drafted.stats.shared_prefix_tokens > 10 * 3 * 512);
  config = small_config();
  config.cache.enable_prefix_caching = false;
  expect_close(drafted, run(config, kArrivals));
}

TEST_CASE("requests that share a prompt and are preempted share it again",
          "[engine][cuda][prefixes]") {
  std::vector<Arrival> arrivals{{0, kShared, 3, 40}};
  for (int i = 0; i < 6; ++i) arrivals.push_back({3, kShared, 2 + i, 40});
  EngineConfig config = small_config();
  const Outcome roomy = run(config, arrivals);
  CHECK(roomy.stats.preemptions == 0);
  config.model.max_model_len = 600;
  config.cache.num_gpu_blocks_override = 34 + 14;
  const Outcome tight = run(config, arrivals);
  CHECK(tight.stats.preemptions > 0);
  CHECK(tight.stats.shared_prefix_tokens > 0);
  expect_close(tight, roomy);
}

}  // namespace quire::test
