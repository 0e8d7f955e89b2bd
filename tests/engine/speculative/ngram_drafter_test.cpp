#include "engine/speculative/ngram_drafter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

Tokens propose(const Tokens& tokens, int min, int max, int count) {
  RequestInit init;
  init.prompt = tokens;
  const Request request(std::move(init));
  NgramDrafter drafter(min, max);
  Tokens drafts{99, 99};  // of somebody before
  drafter.propose(request, count, drafts);
  return drafts;
}

// The rule, as it is said: longest first, then earliest.
Tokens by_hand(const Tokens& tokens, int min, int max, int count) {
  const int size = static_cast<int>(tokens.size());
  for (int length = std::min(max, size - 1); length >= min; --length) {
    for (int at = 0; at + length < size; ++at) {
      if (!std::equal(tokens.end() - length, tokens.end(), tokens.begin() + at)) continue;
      const int begin = at + length, end = std::min(begin + count, size);
      return {tokens.begin() + begin, tokens.begin() + end};
    }
  }
  return {};
}

TEST_CASE("what followed the longest suffix where it stood first is proposed", "[speculative]") {
  CHECK(propose({1, 2, 3, 4, 1, 2, 3}, 2, 2, 2) == Tokens{4, 1});
  CHECK(propose({1, 2, 3, 4, 1, 2, 3}, 1, 3, 3) == Tokens{4, 1, 2});
  CHECK(propose({1, 2, 3, 4, 1, 2}, 3, 3, 2) == Tokens{});         // no three of them twice
  CHECK(propose({7, 2, 9, 2, 8, 2}, 1, 1, 1) == Tokens{9});        // the earliest
  CHECK(propose({5, 2, 9, 1, 2, 8, 1, 2}, 1, 2, 1) == Tokens{8});  // the longest before it
  CHECK(propose({3, 3, 3, 3}, 1, 2, 5) == Tokens{3, 3});           // as many as there are
  CHECK(propose({1}, 1, 3, 5) == Tokens{});
}

TEST_CASE("proposals agree with the rule on random texts", "[speculative]") {
  std::mt19937 random(11);
  int proposed = 0;
  for (int round = 0; round < 20'000; ++round) {
    Tokens tokens(1 + random() % 40);
    const unsigned alphabet = 1 + random() % 4;
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % alphabet);
    const int min = 1 + static_cast<int>(random() % 4), max = min + static_cast<int>(random() % 4);
    const int count = 1 + static_cast<int>(random() % 6);
    const Tokens expected = by_hand(tokens, min, max, count);
    REQUIRE(propose(tokens, min, max, count) == expected);
    proposed += expected.empty() ? 0 : 1;
  }
  CHECK(proposed > 5000);
}

}  // namespace
}  // namespace quire
