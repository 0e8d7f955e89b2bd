#include "engine/sampling/token_counts.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

namespace quire {
namespace {

TEST_CASE("token counts agree with a map", "[engine][sampling]") {
  TokenCounts counts;
  std::mt19937 random(7);
  for (int round = 0; round < 3; ++round) {
    counts.clear();
    std::map<TokenId, std::int32_t> expected;
    const int vocab = round == 0 ? 50 : 200'000;
    for (int i = 0; i < 5000; ++i) {
      const auto token = static_cast<TokenId>(random() % vocab);
      if (i < 1000) {
        counts.add_prompt(token);
        expected[token] += 0;
      } else {
        counts.add_output(token);
        ++expected[token];
      }
    }
    std::map<TokenId, std::int32_t> actual;
    for (std::size_t i = 0; i < counts.tokens().size(); ++i) {
      CHECK(actual.emplace(counts.tokens()[i], counts.counts()[i]).second);
    }
    CHECK(actual == expected);
  }
}

}  // namespace
}  // namespace quire
