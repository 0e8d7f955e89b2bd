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

// A head that knows some of the target's tokens.
EngineConfig drafting_config() {
  EngineConfig config = small_config();
  config.model.path = "tests/data/golden/drafts/eagle3-llama/target";
  config.speculative = {.method = DraftMethod::eagle3,
                        .num_speculative_tokens = 3,
                        .adaptive = false,
                        .model = "tests/data/golden/drafts/eagle3-llama/draft"};
  return config;
}

AddRequest request_of(std::uint64_t id, int num_prompt) {
  std::mt19937 rng(static_cast<unsigned>(id));
  AddRequest request;
  request.id = RequestId{id};
  for (int i = 0; i < num_prompt; ++i) request.prompt.push_back(static_cast<TokenId>(rng() % 120));
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 20;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 2;
  if (id % 2 == 0) request.sampling.prompt_logprobs = 2;
  if (id == 3) request.sampling.presence_penalty = 0.7f;  // which reads drafts, too
  return request;
}

struct Answer {
  std::vector<TokenId> tokens, drafts;
  std::vector<float> logprobs, logits, draft_logits;
};
struct Answers {
  std::map<std::uint64_t, Answer> by_request;
  std::int64_t num_accepted = 0;  // drafts
};

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
      auto& all = answers.by_request[id.value].logits;
      all.insert(all.end(), row.begin(), row.end());
    });
  }
  if (observed && config.speculative.uses_draft_model()) {
    engine.observe_drafts([&](const ShownDraft& shown) {
      Answer& answer = answers.by_request[shown.request.value];
      answer.drafts.push_back(shown.draft);
      answer.draft_logits.insert(answer.draft_logits.end(), shown.logits.begin(),
                                 shown.logits.end());
    });
  }
  for (std::uint64_t id = 1; id <= 4; ++id) engine.add(request_of(id, static_cast<int>(11 * id)));
  while (engine.has_work()) {
    for (const RequestOutput& output : engine.step().requests) {
      REQUIRE_FALSE(output.error);
      Answer& answer = answers.by_request[output.id.value];
      answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      add_logprobs(output.logprobs, answer);
      add_logprobs(output.prompt_logprobs, answer);
    }
  }
  answers.num_accepted = engine.stats().accepted_draft_tokens;
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
  const bool drafts = GENERATE(false, true);
  const EngineConfig config = drafts ? drafting_config() : small_config();
  const Answers want = run(config, cpu_backend(config), observed);
  const Answers got = run(config, emulated_backend(), observed);
  REQUIRE(got.by_request.size() == want.by_request.size());
  REQUIRE(got.num_accepted == want.num_accepted);
  REQUIRE((got.num_accepted > 0) == drafts);
  for (const auto& [id, answer] : want.by_request) {
    CAPTURE(observed, drafts, id);
    const Answer& own = got.by_request.at(id);
    REQUIRE(own.tokens == answer.tokens);
    require_close(own.logprobs, answer.logprobs);
    require_close(own.logits, answer.logits);
    REQUIRE(own.drafts == answer.drafts);
    require_close(own.draft_logits, answer.draft_logits);
  }
}

}  // namespace quire::test
