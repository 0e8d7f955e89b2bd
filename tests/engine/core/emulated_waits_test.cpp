// Everything that the host reads back from an engine on the emulated CUDA backend, against the same
// engine on the CPU: what delete_host_synchronisation.py runs with one wait fewer.

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
  config.model.path = "tests/data/golden/models/qwen3-5";
  config.model.dtype = DType::f32;
  config.model.max_model_len = 256;
  config.cache.num_gpu_blocks_override = 65;
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_num_batched_tokens = 32;  // prompts come in pieces
  return config;
}

AddRequest request_of(std::uint64_t id, int num_prompt) {
  std::mt19937 rng(static_cast<unsigned>(id));
  AddRequest request;
  request.id = RequestId{id};
  for (int i = 0; i < num_prompt; ++i) request.prompt.push_back(static_cast<TokenId>(rng() % 120));
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 10;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 2;
  if (id % 2 == 0) request.sampling.prompt_logprobs = 2;
  return request;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs, logits;
};
using Answers = std::map<std::uint64_t, Answer>;

void add_logprobs(const std::vector<PositionLogprobs>& positions, Answer& answer) {
  for (const PositionLogprobs& position : positions) {
    answer.logprobs.push_back(position.chosen.logprob);
    for (const TokenLogprob& top : position.top) answer.logprobs.push_back(top.logprob);
  }
}

Answers run(const EngineConfig& config, EngineBackend backend, bool observed) {
  EngineCore engine(config, EngineId{0}, std::move(backend), [](std::string_view, double) {});
  Answers answers;
  if (observed) {
    engine.observe_logits([&](RequestId id, int, std::span<const float> row) {
      auto& all = answers[id.value].logits;
      all.insert(all.end(), row.begin(), row.end());
    });
  }
  for (std::uint64_t id = 1; id <= 4; ++id) engine.add(request_of(id, static_cast<int>(11 * id)));
  while (engine.has_work()) {
    for (const RequestOutput& output : engine.step().requests) {
      REQUIRE_FALSE(output.error);
      Answer& answer = answers[output.id.value];
      answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      add_logprobs(output.logprobs, answer);
      add_logprobs(output.prompt_logprobs, answer);
    }
  }
  return answers;
}

void require_close(const std::vector<float>& got, const std::vector<float>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) REQUIRE(got[i] == Approx(want[i]).margin(2e-3));
}

}  // namespace

TEST_CASE("what the host reads back is there: tokens, log-probabilities, logits",
          "[engine][cuda]") {
  const bool observed = GENERATE(false, true);
  const EngineConfig config = small_config();
  const Answers want = run(config, cpu_backend(config), observed);
  const Answers got = run(config, emulated_backend(), observed);
  REQUIRE(got.size() == want.size());
  for (const auto& [id, answer] : want) {
    CAPTURE(observed, id);
    REQUIRE(got.at(id).tokens == answer.tokens);
    require_close(got.at(id).logprobs, answer.logprobs);
    require_close(got.at(id).logits, answer.logits);
  }
}

}  // namespace quire::test
