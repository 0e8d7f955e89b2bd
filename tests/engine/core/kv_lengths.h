#pragma once
// Prompts of many lengths that one engine prefills and another decodes.

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/engine/core/kv_pair.h"

namespace quire::test {

inline std::vector<TokenId> random_prompt(unsigned seed, int length) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<std::size_t>(length));
  for (TokenId& token : tokens) token = static_cast<TokenId>(3 + random() % 380);
  return tokens;
}

// Greedy, to its last token.
inline AddRequest request_of(std::vector<TokenId> prompt, int max_tokens = 24) {
  AddRequest request = greedy_request(std::move(prompt), max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

inline constexpr int kPromptLengths[] = {1, 2, 15, 16, 17, 33, 64, 97, 130, 200};

// The pair answers as one engine of its own does, all but the prompt of one token is fetched, and
// nothing of it is left on either side.
inline void check_lengths(KvPair& pair, const EngineConfig& alone_config) {
  SteppedEngine alone(alone_config);
  int num_fetched = 0;
  for (const int length : kPromptLengths) {
    const AddRequest request = request_of(random_prompt(static_cast<unsigned>(length), length));
    const std::vector<TokenId> expected = alone.finish(request).token_ids;
    const std::string params = pair.prefill_params(request.prompt);
    num_fetched += params.empty() ? 0 : 1;
    INFO("prompt of " << length << " tokens: " << params);
    CHECK(pair.decode(request, params).token_ids == expected);
  }
  CHECK(num_fetched == static_cast<int>(std::size(kPromptLengths)) - 1);
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == num_fetched);
  // The last release may still be on its way.
  for (int i = 0; i < 2000 && pair.sent().kept_bytes > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(pair.sent().kept_bytes == 0);
  CHECK(pair.sent().sent == num_fetched);
  CHECK(pair.received().arriving_bytes == 0);
}

}  // namespace quire::test
