// Texts whose tokens are remembered: the same ids as without, whatever stood around them before, in
// a memory that has a limit.

#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "tests/text/tokenizer_golden.h"
#include "text/tokenizer/segment_cache.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

using Ids = std::vector<TokenId>;

std::string long_text(char letter, std::size_t bytes = 100) { return std::string(bytes, letter); }

Ids found(SegmentCache& cache, std::string_view text, bool starts_input = false) {
  Ids ids{-1};
  return cache.append(text, starts_input, ids) ? ids : Ids();
}

TEST_CASE("a text's tokens are found again, at the place they were made for", "[text][tokenizer]") {
  SegmentCache cache;
  CHECK(found(cache, long_text('a')).empty());
  cache.put(long_text('a'), false, Ids{1, 2});
  cache.put(long_text('a'), true, Ids{3});
  CHECK(found(cache, long_text('a')) == Ids{-1, 1, 2});
  CHECK(found(cache, long_text('a'), true) == Ids{-1, 3});
  CHECK(found(cache, long_text('a', 101)).empty());
  CHECK(cache.bytes() > 2 * 100);
}

TEST_CASE("what was used longest ago gives way", "[text][tokenizer]") {
  SegmentCache cache(3000);
  for (char c = 'a'; c <= 'z'; ++c) {
    cache.put(long_text(c), false, Ids(20, c));
    CHECK(cache.bytes() <= 3000);
    CHECK(found(cache, long_text('a')) == [&] {
      Ids ids(20, 'a');
      ids.insert(ids.begin(), -1);
      return ids;
    }());
  }
  CHECK(found(cache, long_text('b')).empty());
  CHECK(!found(cache, long_text('z')).empty());
  const std::size_t before = cache.bytes();
  cache.put(long_text('!', 1000), false, Ids{1});
  CHECK(found(cache, long_text('!', 1000)).empty());
  CHECK(cache.bytes() == before);
  SegmentCache none(0);
  none.put(long_text('a'), false, Ids{1});
  CHECK(none.bytes() == 0);
}

// Words of the golden texts, with the tokenizer's own tokens between them.
std::string conversation(const std::vector<testing::EncodeCase>& cases,
                         const std::vector<std::string>& marks, std::mt19937& random) {
  std::string text;
  for (std::size_t parts = 1 + random() % 5; parts > 0; --parts) {
    if (!marks.empty() && random() % 4 != 0) text += marks[random() % marks.size()];
    const std::string& words = cases[random() % 12 % cases.size()].text;
    text += random() % 2 ? words : words.substr(0, 1 + words.size() % 300);
  }
  return text;
}

std::vector<std::string> marks_of(const Tokenizer& tokenizer) {
  std::vector<std::string> marks;
  for (const auto& [name, text] : tokenizer.special_strings()) marks.push_back(text);
  for (TokenId id = tokenizer.vocab_size(); id-- > 0 && marks.size() < 12;) {
    if (tokenizer.is_special(id)) marks.emplace_back(tokenizer.id_to_token(id));
  }
  return marks;
}

TEST_CASE("no id depends on what was encoded before", "[text][tokenizer]") {
  std::mt19937 random(5);
  for (const auto& folder : testing::tokenizer_folders()) {
    INFO(folder);
    const auto plain = Tokenizer::load(folder, 0);
    const auto cached = Tokenizer::load(folder), cramped = Tokenizer::load(folder, 20'000);
    const auto cases = testing::encode_cases(folder);
    const auto marks = marks_of(*plain);
    std::vector<std::pair<std::string, Ids>> texts;
    for (int i = 0; i < 40; ++i) {
      const std::string text = conversation(cases, marks, random);
      if (text.size() > 20'000) continue;
      texts.emplace_back(text, plain->encode(text, i % 2 == 0));
    }
    std::vector<int> wrong(3);
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < wrong.size(); ++t) {
        threads.emplace_back([&, t] {
          for (std::size_t i = 0; i < 2 * texts.size(); ++i) {
            const std::size_t place = (i * 7 + t) % texts.size();
            const auto& [text, ids] = texts[place];
            const bool special = plain->encode(text, true) == ids;
            wrong[t] += cached->encode(text, special) != ids;
            wrong[t] += cramped->encode(text, special) != ids;
          }
        });
      }
    }
    CHECK(wrong == std::vector<int>(3));
  }
}

}  // namespace
}  // namespace quire
