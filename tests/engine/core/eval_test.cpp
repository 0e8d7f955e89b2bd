// The shipped model, greedy, against the reference's tokens: whatever the batch, the chunks, the
// prefix hits and the preemptions, the answers are the same.

#include <simdjson.h>

#include <catch2/catch.hpp>
#include <deque>

#include "tests/engine/core/live_engine.h"
#include "tests/support/sanitized.h"

namespace quire::test {
namespace {

struct EvalCase {
  std::vector<TokenId> prompt;
  std::vector<TokenId> reference;
  int max_tokens = 0;
  double margin = 0;  // smallest distance of best and second best logit on the reference's way
};

// Below this distance bf16 rounding may decide.
constexpr double kSafeMargin = 0.25;

std::vector<TokenId> ids(simdjson::dom::element list) {
  std::vector<TokenId> values;
  for (const auto id : list.get_array()) values.push_back(static_cast<TokenId>(std::int64_t(id)));
  return values;
}

std::vector<EvalCase> read_cases(const std::string& path) {
  simdjson::dom::parser parser;
  std::vector<EvalCase> cases;
  for (const auto line : parser.load_many(path)) {
    EvalCase one;
    one.prompt = ids(line["prompt_ids"]);
    one.reference = ids(line["reference_ids"]);
    one.max_tokens = static_cast<int>(std::int64_t(line["max_tokens"]));
    one.margin = line["margin"].get_double();
    if (one.margin >= kSafeMargin) cases.push_back(std::move(one));
  }
  return cases;
}

void check_answer(const EvalCase& eval, const RequestOutput& output) {
  std::vector<TokenId> tokens = output.token_ids;
  if (output.stop_token) tokens.pop_back();
  CHECK(tokens == eval.reference);
  CHECK(output.finish_reason == FinishReason::stop);
}

// Keeps `concurrency` requests running.
awaitable<void> check_all(EngineGroup& group, const std::vector<EvalCase>& cases,
                          std::size_t concurrency) {
  struct Running {
    const EvalCase* eval;
    Generation generation;
  };
  std::deque<Running> running;
  for (std::size_t next = 0; next < cases.size() || !running.empty();) {
    while (next < cases.size() && running.size() < concurrency) {
      const EvalCase& eval = cases[next++];
      auto generation = group.submit(greedy_request(eval.prompt, eval.max_tokens));
      REQUIRE(generation.has_value());
      running.push_back({&eval, std::move(*generation)});
    }
    const RequestOutput output = co_await read_to_end(running.front().generation);
    check_answer(*running.front().eval, output);
    running.pop_front();
  }
}

struct Setting {
  const char* name;
  const char* model;
  std::size_t concurrency;
  int passes;  // over the whole set: later ones find their prefixes
  int batched_tokens;
  int blocks;
  bool prefix_caching;
  int cases;
  bool overlapping_steps = false;
};

awaitable<void> check_setting(asio::any_io_executor pool, const Setting& setting) {
  EngineConfig config = tiny_config();
  config.model.path = setting.model;
  config.scheduler.max_num_batched_tokens = setting.batched_tokens;
  config.scheduler.max_num_seqs = std::min(32, setting.batched_tokens);
  config.cache.num_gpu_blocks_override = setting.blocks;
  config.cache.enable_prefix_caching = setting.prefix_caching;
  LiveEngine engine(pool, config, setting.overlapping_steps ? pretend_backend : cpu_backend);
  co_await engine.start();
  auto cases = read_cases(setting.model + std::string("/eval.jsonl"));
  REQUIRE(cases.size() > 100);
  const bool fewer = kSanitized && setting.blocks > 100;  // a few alone would fit a small pool
  const auto count = static_cast<std::size_t>(fewer ? std::min(48, setting.cases) : setting.cases);
  cases.resize(std::min(cases.size(), count));
  for (int pass = 0; pass < setting.passes; ++pass) {
    co_await check_all(engine.group(), cases, setting.concurrency);
  }
  const EngineStats stats = engine.group().stats(EngineId{0});
  CHECK(stats.num_running == 0);
  CHECK(stats.num_free_blocks == stats.num_blocks);
  CHECK((stats.prefix_cache_hits > 0) == setting.prefix_caching);
  if (setting.blocks < 100) CHECK(stats.preemptions > 0);
}

constexpr const char* kDense = "models/quire-tiny";
constexpr const char* kHybrid = "models/quire-tiny-hybrid";  // gated delta net, attention, experts

TEST_CASE("the shipped models answer as their references", "[engine][core][eval]") {
  const auto setting = GENERATE(values<Setting>({
      {"one at a time", kDense, 1, 1, 512, 1025, false, 300},
      {"32 at a time", kDense, 32, 1, 512, 1025, false, 300},
      {"32 at a time, found prefixes", kDense, 32, 2, 512, 1025, true, 300},
      {"chunks of 7 tokens", kDense, 8, 1, 7, 1025, true, 60},
      {"a pool that makes it preempt", kDense, 32, 1, 512, 66, false, 120},
      {"overlapping steps", kDense, 32, 1, 512, 1025, true, 120, true},
      {"overlapping steps, chunks, preemption", kDense, 32, 1, 64, 66, false, 120, true},
      {"hybrid, one at a time", kHybrid, 1, 1, 512, 1025, false, 100},
      {"hybrid, 32 at a time", kHybrid, 32, 1, 512, 1025, false, 300},
      {"hybrid, found prefixes", kHybrid, 32, 2, 512, 1025, true, 300},
      {"hybrid, found prefixes, chunks below a block", kHybrid, 8, 2, 20, 1025, true, 60},
      {"hybrid, overlapping steps, chunks", kHybrid, 32, 1, 40, 1025, false, 100, true},
  }));
  INFO(setting.name);
  run(2, [setting](asio::any_io_executor pool) { return check_setting(pool, setting); });
}

}  // namespace
}  // namespace quire::test
