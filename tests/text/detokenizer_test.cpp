#include "text/tokenizer/detokenizer.h"

#include <simdjson.h>

#include <catch2/catch.hpp>
#include <random>

#include "tests/text/tokenizer_golden.h"

namespace quire {
namespace {

using Ids = std::span<const TokenId>;

// The ids of a folder's cases and as many random ones, some out of the vocabulary.
std::vector<std::vector<TokenId>> sequences_of(const std::filesystem::path& folder,
                                               const Tokenizer& tokenizer, std::mt19937& random) {
  std::vector<std::vector<TokenId>> sequences;
  for (auto& test : testing::decode_cases(folder)) sequences.push_back(std::move(test.ids));
  std::uniform_int_distribution<TokenId> any_id(-1, tokenizer.vocab_size() + 1);
  std::uniform_int_distribution<TokenId> low_id(0, 299);  // where bytes and special tokens are
  for (int i = 0; i < 60; ++i) {
    std::vector<TokenId> ids(static_cast<std::size_t>(i));
    for (TokenId& id : ids) id = i % 2 == 0 ? any_id(random) : low_id(random);
    sequences.push_back(std::move(ids));
  }
  return sequences;
}

TEST_CASE("however a stream of ids is cut, its pieces join to the same text",
          "[text][detokenizer]") {
  std::mt19937 random(1);
  for (const auto& folder : testing::tokenizer_folders()) {
    INFO(folder);
    const auto tokenizer = Tokenizer::load(folder);
    for (const auto& ids : sequences_of(folder, *tokenizer, random)) {
      const bool skip = random() % 2 == 0;
      const std::string whole = tokenizer->decode(ids, skip);
      for (const std::size_t most : {std::size_t{1}, std::size_t{2}, std::size_t{7}}) {
        Detokenizer detokenizer(*tokenizer, skip);
        std::string joined;
        const auto add = [&](const std::string& piece) {
          CHECK(simdjson::validate_utf8(piece));
          joined += piece;
        };
        for (std::size_t at = 0; at < ids.size();) {
          const std::size_t count = std::min<std::size_t>(1 + random() % most, ids.size() - at);
          add(detokenizer.push(Ids(ids).subspan(at, count)));
          at += count;
        }
        add(detokenizer.finish());
        CHECK(joined == whole);
      }
    }
  }
}

TEST_CASE("with a prompt the pieces are what the whole has more than the prompt",
          "[text][detokenizer]") {
  std::mt19937 random(2);
  for (const auto& folder : testing::tokenizer_folders()) {
    INFO(folder);
    const auto tokenizer = Tokenizer::load(folder);
    for (const auto& ids : sequences_of(folder, *tokenizer, random)) {
      const std::size_t cut = ids.empty() ? 0 : random() % ids.size();
      const std::string whole = tokenizer->decode(ids, false);
      const std::string prompt = tokenizer->decode(Ids(ids).first(cut), false);
      if (!whole.starts_with(prompt)) continue;  // a character that the cut divides
      Detokenizer detokenizer(*tokenizer, false, Ids(ids).first(cut));
      std::string text;
      for (const TokenId id : Ids(ids).subspan(cut)) text += detokenizer.push(id);
      CHECK(prompt + text + detokenizer.finish() == whole);
    }
  }
}

// A character that comes in bytes is given as soon as its last byte is there, and not before.
TEST_CASE("byte-level pieces wait for whole characters only", "[text][detokenizer]") {
  const auto tokenizer = Tokenizer::parse(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "ä": 1, "¸": 2, "Ń": 3, "Ġ": 4}, "merges": []},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"}})");
  Detokenizer detokenizer(*tokenizer, false);
  CHECK(detokenizer.push(0) == "a");
  CHECK(detokenizer.push(1).empty());      // E4
  CHECK(detokenizer.push(2).empty());      // B8
  CHECK(detokenizer.push(3) == "\u4e2d");  // AD
  CHECK(detokenizer.push(1).empty());
  CHECK(detokenizer.push(4) == "\uFFFD ");
  CHECK(detokenizer.push(1).empty());
  CHECK(detokenizer.finish() == "\uFFFD");
}

TEST_CASE("a run of byte tokens is one text, or all bad", "[text][detokenizer]") {
  const auto tokenizer = Tokenizer::parse(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "<0xC3>": 1, "<0xA9>": 2, "<0xFF>": 3}, "merges": []},
    "decoder": {"type": "ByteFallback"}})");
  Detokenizer detokenizer(*tokenizer, false);
  CHECK(detokenizer.push(1).empty());
  CHECK(detokenizer.push(2).empty());  // "é", unless a bad byte follows
  CHECK(detokenizer.push(0) == "éa");
  CHECK(detokenizer.push(1).empty());
  CHECK(detokenizer.push(2).empty());
  CHECK(detokenizer.push(3) == "\uFFFD\uFFFD\uFFFD");
  CHECK(detokenizer.push(2) == "\uFFFD");  // nothing can save this run
  CHECK(detokenizer.push(0) == "a");
  CHECK(detokenizer.finish().empty());
}

TEST_CASE("a prompt that breaks off inside of a character", "[text][detokenizer]") {
  const auto tokenizer = Tokenizer::parse(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "Ã": 1, "©": 2}, "merges": []},
    "decoder": {"type": "ByteLevel"}})");
  const std::vector<TokenId> prompt = {0, 1};
  SECTION("what completes it gives the character") {
    Detokenizer detokenizer(*tokenizer, false, prompt);
    CHECK(detokenizer.push(2) == "é");
  }
  SECTION("what does not leaves it as it was told") {
    Detokenizer detokenizer(*tokenizer, false, prompt);
    CHECK(detokenizer.push(0) == "a");
  }
}

}  // namespace
}  // namespace quire
