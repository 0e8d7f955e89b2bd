#include "server/generation/fill_in_middle.h"

#include <catch2/catch.hpp>

using namespace quire;

namespace {

// One letter is one token; the special ones come after them.
std::unique_ptr<Tokenizer> with_tokens(const std::vector<std::string>& special) {
  std::string vocab, added;
  for (int i = 0; i < 26; ++i) {
    vocab +=
        (i ? ",\"" : "\"") + std::string(1, static_cast<char>('a' + i)) + "\":" + std::to_string(i);
  }
  for (std::size_t i = 0; i < special.size(); ++i) {
    added +=
        std::string(i ? "," : "") + R"({"id":)" + std::to_string(26 + i) + R"(,"content":")" + special[i] +
        R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})";
  }
  return Tokenizer::parse(R"({"version":"1.0","added_tokens":[)" + added +
                          R"(],"normalizer":null,"pre_tokenizer":null,"post_processor":null,)"
                          R"("decoder":null,"model":{"type":"BPE","vocab":{)" +
                          vocab + R"(},"merges":[]}})");
}

using Ids = std::vector<TokenId>;

}  // namespace

TEST_CASE("prefix and suffix stand between the tokens that the model knows", "[server][fim]") {
  struct Case {
    std::vector<std::string> tokens;
    Ids expected;
  };
  const auto c = GENERATE(values<Case>({
      {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, {26, 0, 1, 27, 2, 28}},
      {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}, {26, 0, 1, 27, 2, 28}},
      {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, {26, 0, 1, 27, 2, 28}},
      {{"▁<PRE>", "▁<SUF>", "▁<MID>"}, {26, 0, 1, 27, 2, 28}},
      {{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, {26, 0, 1, 27, 2, 28}},
      {{"[PREFIX]", "[SUFFIX]"}, {27, 2, 26, 0, 1}},
  }));
  INFO(c.tokens.front());
  CHECK(fill_in_middle(*with_tokens(c.tokens), "ab", "c", true) == c.expected);
}

TEST_CASE("a tokenizer without all of the tokens cannot say it", "[server][fim]") {
  CHECK_FALSE(fill_in_middle(*with_tokens({}), "ab", "c", true));
  CHECK_FALSE(fill_in_middle(*with_tokens({"<|fim_prefix|>", "<|fim_suffix|>"}), "ab", "c", true));
}
