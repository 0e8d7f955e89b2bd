// How the work grows: texts made to be hard cost no more for each byte when they are longer. And
// many threads share one tokenizer.

#include <catch2/catch.hpp>
#include <ctime>
#include <thread>

#include "tests/text/tokenizer_golden.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least CPU time of a few runs: what other processes do does not count.
template <class Run>
double cost(Run&& run) {
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = cpu_seconds();
    run();
    least = std::min(least, cpu_seconds() - start);
  }
  return least;
}

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

TEST_CASE("hard texts take time in proportion to their length", "[text][tokenizer]") {
  constexpr std::size_t kShort = 5'000, kLong = 8 * kShort;
  for (const auto& folder : testing::tokenizer_folders()) {
    const auto tokenizer = Tokenizer::load(folder, /*cache_bytes=*/0);
    for (const std::string_view part : {"a", " ", "\n", "▁", "ab", "é", "中", "\u0301", "'", "A中",
                                        " \n", "aA", "<", "1", "a \u00a0"}) {
      INFO(folder << " \"" << part << "\"");
      const std::string few = repeated(part, kShort);
      const std::string many = repeated(part, kLong);
      const double ratio = cost([&] { tokenizer->encode(many, false); }) /
                           cost([&] { tokenizer->encode(few, false); });
      CHECK(ratio < 24);  // linear: 8, n log n: 10, quadratic: 64
    }
  }
}

TEST_CASE("the cost of a token does not depend on how many came before", "[text][detokenizer]") {
  for (const auto& folder : testing::tokenizer_folders()) {
    INFO(folder);
    const auto tokenizer = Tokenizer::load(folder);
    const auto ids = tokenizer->encode(repeated("some words, 1234 and é中 ", 4'000), false);
    const auto decode = [&](std::size_t times) {
      Detokenizer detokenizer(*tokenizer, false);
      for (; times > 0; --times) {
        for (const TokenId id : ids) detokenizer.push(id);
      }
    };
    CHECK(cost([&] { decode(80); }) / cost([&] { decode(10); }) < 24);
  }
}

TEST_CASE("threads share a tokenizer", "[text][tokenizer]") {
  for (const auto& folder : testing::tokenizer_folders()) {
    INFO(folder);
    const auto tokenizer = Tokenizer::load(folder);
    const auto cases = testing::encode_cases(folder);
    std::vector<int> wrong(4);
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < cases.size(); ++i) {
          const auto& test = cases[(i + t * 7) % cases.size()];
          if (test.text.size() > 10'000) continue;
          wrong[t] += !test.ids.is(tokenizer->encode(test.text, false));
        }
      });
    }
    threads.clear();
    CHECK(wrong == std::vector<int>(4));
  }
}

}  // namespace
}  // namespace quire
