// What a model with recurrent states finds again of a conversation, under each policy of keeping
// states, and that its answers do not depend on it.

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <map>
#include <numeric>
#include <random>

#include "tests/engine/core/stepped_engine.h"
#include "tests/support/sanitized.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

// f32: what a chunk's end rounds away is too little to turn a token.
EngineConfig hybrid_config(std::optional<StateCacheMode> mode) {
  EngineConfig config = tiny_config();
  config.model.path = "models/quire-tiny-hybrid";
  config.model.dtype = DType::f32;
  config.model.max_model_len = 4096;
  config.scheduler.max_num_batched_tokens = 2048;
  config.cache.num_gpu_blocks_override = 2049;
  if (mode == StateCacheMode::none) {
    config.cache.enable_prefix_caching = false;
  } else {
    config.cache.mamba_cache_mode = mode;
  }
  if (mode == StateCacheMode::all) config.cache.mamba_block_size = 16;
  return config;
}

Tokens text(int length, unsigned seed) {
  std::mt19937 random(seed);
  Tokens tokens(length);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 1500);
  return tokens;
}

Tokens operator+(Tokens head, const Tokens& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

RequestOutput answer(SteppedEngine& engine, const Tokens& prompt, int num_tokens) {
  AddRequest request = greedy_request(prompt, num_tokens);
  request.sampling.ignore_eos = true;
  return engine.finish(std::move(request));
}

// Requests of some conversations, one after the other.
struct Turn {
  int conversation = 0;
  Tokens text;         // after what the conversation had before
  int num_answer = 1;  // tokens
};

struct Outcome {
  std::vector<int> prompts, cached;  // tokens, by turn
  std::vector<Tokens> answers;

  int num_prompt() const { return std::accumulate(prompts.begin(), prompts.end(), 0); }
  int num_cached() const { return std::accumulate(cached.begin(), cached.end(), 0); }
};

Outcome play(const std::vector<Turn>& turns, const EngineConfig& config) {
  SteppedEngine engine(config);
  Outcome outcome;
  std::map<int, Tokens> conversations;
  for (const Turn& turn : turns) {
    Tokens& conversation = conversations[turn.conversation];
    conversation = conversation + turn.text;
    const RequestOutput output = answer(engine, conversation, turn.num_answer);
    outcome.prompts.push_back(static_cast<int>(conversation.size()));
    outcome.cached.push_back(output.num_cached_tokens);
    outcome.answers.push_back(output.token_ids);
    conversation = conversation + output.token_ids;
  }
  return outcome;
}

int block_size() {
  static const int size = SteppedEngine(hybrid_config({})).core.ready().block_size;
  return size;
}

int whole_blocks(int num_tokens) { return num_tokens / block_size() * block_size(); }

TEST_CASE("the second turn computes less than a block of the first again", "[engine][hybrid]") {
  const int block = block_size();
  const int whole = 2000 / block * block;
  // Prompts, and conversations of two turns, that end a token before, at and behind a boundary.
  const std::pair<int, int> lengths[] = {{2000, 40},     {whole - 1, 40},    {whole, block - 1},
                                         {whole, block}, {whole, block + 1}, {whole + 1, 40}};
  for (const auto& [num_prompt, num_answer] : lengths) {
    CAPTURE(num_prompt, num_answer, block);
    const std::vector<Turn> turns{{0, text(num_prompt, 1), num_answer}, {0, text(30, 2), 20}};
    const Outcome outcome = play(turns, hybrid_config({}));
    // The answer's last token was drawn and never computed.
    CHECK(outcome.cached[1] == whole_blocks(num_prompt + num_answer - 1));
    CHECK(outcome.cached[1] >= outcome.prompts[1] - 30 - block);
    CHECK(outcome.answers == play(turns, hybrid_config(StateCacheMode::none)).answers);
  }
}

TEST_CASE("a prompt sent again is found up to its last boundary", "[engine][hybrid]") {
  const int block = block_size();
  for (const int num_prompt : {block - 1, block, block + 1, 20 * block, 1025}) {
    CAPTURE(num_prompt, block);
    const Outcome outcome =
        play({{0, text(num_prompt, 1), 8}, {1, text(num_prompt, 1), 8}}, hybrid_config({}));
    CHECK(outcome.cached[1] == whole_blocks(num_prompt - 1));
    CHECK(outcome.answers[0] == outcome.answers[1]);
  }
}

TEST_CASE("a prefix that prompts share is kept when the second prompt shows it",
          "[engine][hybrid]") {
  const int shared = 700;
  std::vector<Turn> turns;
  for (int i = 0; i < 4; ++i) turns.push_back({i, text(shared, 1) + text(300, 10 + i), 8});
  const Outcome outcome = play(turns, hybrid_config({}));
  CHECK(outcome.cached == std::vector{0, 0, whole_blocks(shared), whole_blocks(shared)});
  CHECK(outcome.answers == play(turns, hybrid_config(StateCacheMode::none)).answers);
}

struct Script {
  std::string name;
  std::vector<Turn> turns;
  int num_blocks = 2049;  // of the pool
  int max_model_len = 4096;
};

std::vector<Script> scripts() {
  const int whole = 2000 / block_size() * block_size();
  Script turns{"six turns", {{0, text(2000, 1), 64}}};
  for (int i = 0; i < 5; ++i) turns.turns.push_back({0, text(50, 2 + i), 64});
  Script document{"eight questions, one document", {}};
  for (int i = 0; i < 8; ++i) {
    document.turns.push_back({i, text(1500, 1) + text(60, 10 + i), 32});
  }
  Script crowd{"eight conversations in turn, small cache", {}, 261, 2048};
  for (int i = 0; i < 32; ++i) {
    crowd.turns.push_back({i % 8, text(i < 8 ? 300 : 30, 20 + i), 200});
  }
  return {{"the same prompt again", {{0, text(2000, 1), 64}, {1, text(2000, 1), 64}}},
          {"the same, of whole blocks", {{0, text(whole, 1), 64}, {1, text(whole, 1), 64}}},
          turns,
          document,
          crowd};
}

Outcome play_in(const Script& script, StateCacheMode mode) {
  EngineConfig config = hybrid_config(mode);
  config.cache.num_gpu_blocks_override = script.num_blocks;
  config.model.max_model_len = script.max_model_len;
  return play(script.turns, config);
}

TEST_CASE("adaptive states find at least what align's do", "[engine][hybrid]") {
  for (const Script& script : scripts()) {
    if (kSanitized && script.turns.size() > 2) continue;  // there it would take minutes
    INFO(script.name);
    CHECK(play_in(script, StateCacheMode::adaptive).num_cached() >=
          play_in(script, StateCacheMode::align).num_cached());
  }
}

// docs/benchmarks.md
TEST_CASE("how much each policy finds, as a table", "[.table]") {
  constexpr StateCacheMode kModes[] = {StateCacheMode::none, StateCacheMode::align,
                                       StateCacheMode::all, StateCacheMode::adaptive};
  std::cout << "| prompt tokens found in the cache | sent |";
  for (const StateCacheMode mode : kModes) std::cout << " " << name_of(mode) << " |";
  std::cout << "\n";
  for (const Script& script : scripts()) {
    std::string row;
    int num_sent = 0;
    for (const StateCacheMode mode : kModes) {
      const Outcome outcome = play_in(script, mode);
      num_sent = outcome.num_prompt();
      row += fmt::format(" {} |", outcome.num_cached());
    }
    std::cout << fmt::format("| {} | {} |{}\n", script.name, num_sent, row);
  }
}

}  // namespace
}  // namespace quire::test
