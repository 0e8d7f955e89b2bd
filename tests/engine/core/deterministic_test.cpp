// --deterministic on the CPU: the same bits for a request whatever the batch, the chunks, the
// prefix hits, the preemptions and the overlap of steps.

#include <simdjson.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/engine/core/live_engine.h"

namespace quire::test {
namespace {

constexpr int kMaxTokens = 24;

// Prompts of the model's evaluation, long and short in turn.
std::vector<std::vector<TokenId>> prompts_of(const std::string& model, std::size_t count) {
  std::vector<std::vector<TokenId>> prompts;
  std::ifstream file(model + "/eval.jsonl");
  simdjson::dom::parser parser;
  for (std::string text; prompts.size() < count && std::getline(file, text);) {
    auto& prompt = prompts.emplace_back();
    const simdjson::dom::element row = parser.parse(text);
    for (const std::int64_t id : row["prompt_ids"].get_array())
      prompt.push_back(static_cast<TokenId>(id));
  }
  return prompts;
}

// Sampled, so that the smallest difference in a logit can become another token.
AddRequest sampled_request(const std::vector<TokenId>& prompt, std::size_t index) {
  AddRequest request = greedy_request(prompt, kMaxTokens);
  request.sampling.temperature = 1.5f;
  request.sampling.seed = 100 + index;
  request.sampling.logprobs = 3;
  request.sampling.ignore_eos = true;
  return request;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // of each token and of the best three, compared bit for bit
  bool operator==(const Answer&) const = default;
};

Answer answer_of(const RequestOutput& output) {
  Answer answer{output.token_ids, {}};
  for (const PositionLogprobs& position : output.logprobs) {
    answer.logprobs.push_back(position.chosen.logprob);
    for (const TokenLogprob& top : position.top) answer.logprobs.push_back(top.logprob);
  }
  return answer;
}

struct ModelChoice {
  const char* path;
  std::optional<DType> cache_dtype = {};
};

struct Setting {
  const char* name;
  std::size_t concurrency = 16;
  int batched_tokens = 512;
  int blocks = 1025;
  bool prefix_caching = false;
  int passes = 1;
  bool overlapping_steps = false;
  int target_itl_ms = 0;
};

awaitable<void> answer_all(asio::any_io_executor pool, const ModelChoice& model,
                           const Setting& setting, std::vector<Answer>& answers) {
  EngineConfig config = tiny_config();
  config.deterministic = true;
  config.model.path = model.path;
  config.cache.cache_dtype = model.cache_dtype;
  config.scheduler.max_num_batched_tokens = setting.batched_tokens;
  config.scheduler.max_num_seqs = std::min(16, setting.batched_tokens);
  config.scheduler.target_itl_ms = setting.target_itl_ms;
  config.cache.num_gpu_blocks_override = setting.blocks;
  config.cache.enable_prefix_caching = setting.prefix_caching;
  LiveEngine engine(pool, config, setting.overlapping_steps ? pretend_backend : cpu_backend);
  co_await engine.start();
  const auto prompts = prompts_of(model.path, 32);
  for (int pass = 0; pass < setting.passes; ++pass) {
    answers.clear();
    for (std::size_t first = 0; first < prompts.size(); first += setting.concurrency) {
      std::vector<Generation> generations;
      for (std::size_t i = first; i < std::min(prompts.size(), first + setting.concurrency); ++i) {
        auto generation = engine.group().submit(sampled_request(prompts[i], i));
        REQUIRE(generation.has_value());
        generations.push_back(std::move(*generation));
      }
      for (Generation& generation : generations)
        answers.push_back(answer_of(co_await read_to_end(generation)));
    }
  }
  const EngineStats stats = engine.group().stats(EngineId{0});
  CHECK((stats.prefix_cache_hits > 0) == setting.prefix_caching);
  if (setting.blocks < 100) CHECK(stats.preemptions > 0);
}

}  // namespace

TEST_CASE("an answer has the same bits whatever runs beside it", "[engine][core][deterministic]") {
  const auto model = GENERATE(values<ModelChoice>({{"models/quire-tiny"},
                                                   {"models/quire-tiny-hybrid"},
                                                   {"models/quire-tiny", DType::fp8_e4m3}}));
  const bool hybrid = std::string_view(model.path).ends_with("hybrid");
  const auto answers = [&model](const Setting& setting) {
    std::vector<Answer> result;
    run(2, [&](asio::any_io_executor pool) { return answer_all(pool, model, setting, result); });
    return result;
  };
  const std::vector<Answer> alone = answers({.name = "alone", .concurrency = 1});
  REQUIRE(alone.size() == 32);
  for (const Setting& setting : std::vector<Setting>{
           {.name = "16 at a time"},
           {.name = "chunks of 7 tokens", .batched_tokens = 7},
           {.name = "chunks that fit into a millisecond", .target_itl_ms = 1},
           {.name = "found prefixes", .prefix_caching = true, .passes = 2},
           {.name = "preempted", .blocks = hybrid ? 32 : 66},
           {.name = "overlapping steps", .batched_tokens = 48, .overlapping_steps = true}}) {
    INFO(model.path << (model.cache_dtype ? ", fp8, " : ", ") << setting.name);
    const std::vector<Answer> others = answers(setting);
    REQUIRE(others.size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      INFO("prompt " << i);
      CHECK(others[i].tokens == alone[i].tokens);
      CHECK(others[i] == alone[i]);
    }
  }
}

}  // namespace quire::test
