#include <catch2/catch.hpp>
#include <random>

#include "tests/engine/structured/grammars.h"

namespace quire::structured {
namespace {

TEST_CASE("a token may span several symbols and end inside of a character", "[structured][masks]") {
  const GrammarContext context =
      tokens({"{", "{\"", "\"a\":", "a\":1", "}", "1}", "\xe6\x97", "\xa5", "\"", "\"}", "x\"}", "x"});
  GrammarMatcher object(schema(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})", context));
  CHECK(allowed(object, context) == std::vector<TokenId>{0, 1});
  REQUIRE(object.accept(1));
  CHECK(allowed(object, context) == std::vector<TokenId>{3});
  REQUIRE(object.accept(3));
  CHECK(allowed(object, context) == std::vector<TokenId>{4, 5});
  REQUIRE(object.accept(4));
  CHECK(allowed(object, context) == std::vector<TokenId>{12});
  CHECK(object.complete());
  REQUIRE(object.accept(12));
  CHECK(object.finished());
  CHECK(allowed(object, context).empty());

  GrammarMatcher text(regex("\xe6\x97\xa5+|x\"\\}", context));
  CHECK(allowed(text, context) == std::vector<TokenId>{6, 10, 11});
  REQUIRE(text.accept(6));
  CHECK(allowed(text, context) == std::vector<TokenId>{7});
}

TEST_CASE("tokens are taken back", "[structured][masks]") {
  const GrammarContext context = tokens({"a", "b", "c"});
  GrammarMatcher matcher(regex("a(b|c)", context));
  REQUIRE(matcher.accept(0));
  REQUIRE(matcher.accept(2));
  REQUIRE(matcher.accept(3));
  CHECK_FALSE(matcher.accept(3));
  matcher.rollback(2);
  CHECK_FALSE(matcher.finished());
  CHECK(allowed(matcher, context) == std::vector<TokenId>{1, 2});
  matcher.rollback(1);
  CHECK(allowed(matcher, context) == std::vector<TokenId>{0});
}

TEST_CASE("what must come is known ahead", "[structured][masks]") {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::json_schema;
  spec.any_whitespace = false;
  spec.source = R"({"type":"object","properties":{"name":{"enum":["anna","anton"]}},"required":["name"]})";
  GrammarMatcher matcher(CompiledGrammar::compile(spec, {}));
  CHECK(matcher.forced_bytes() == "{\"name\":\"an");
  REQUIRE(matcher.accept_bytes("{\"name\":\"ant"));
  CHECK(matcher.forced_bytes() == "on\"}");
}

TEST_CASE("end tokens may be a request's own", "[structured][masks]") {
  const GrammarContext context = tokens({"a", "b"});
  const TokenId end[] = {1};
  GrammarMatcher matcher(regex("a*", context), end);
  CHECK(allowed(matcher, context) == std::vector<TokenId>{0, 1});
  REQUIRE(matcher.accept(1));
  CHECK(matcher.finished());
}

// Masks against one text after another: token by token, from scratch.
TEST_CASE("masks agree with trying every token", "[structured][masks]") {
  std::mt19937 random(5);
  std::vector<std::string> words;
  const std::string letters = "abtruefalsn\"\\,:{}[] 0123.-e\n\xc3\xa9";
  for (int i = 0; i < 400; ++i) {
    std::string word;
    for (unsigned n = 1 + random() % 4; n > 0; --n) word += letters[random() % letters.size()];
    words.push_back(word);
  }
  for (const char letter : letters) words.emplace_back(1, letter);
  for (const char* more : {"true", "null", "\\u00", "\"a\":", "\\n", "aaaaaaaaaaaa"}) words.emplace_back(more);
  const GrammarContext context = tokens(words);
  const auto end = static_cast<TokenId>(words.size());
  for (const char* source :
       {R"({})", R"({"type":"string","maxLength":6})", R"({"type":"string","pattern":"a+b"})",
        R"({"properties":{"a":{"type":"string"},"b":{"type":"number","minimum":0.5}}})",
        R"({"type":"array","items":{"type":["integer","string"],"maxLength":3},"minItems":1})"}) {
    INFO(source);
    const auto made = schema(source, context);
    for (int round = 0; round < 12; ++round) {
      GrammarMatcher matcher(made);
      for (int step = 0; step < 25 && !matcher.finished(); ++step) {
        const auto may = allowed(matcher, context);
        std::vector<TokenId> tried;
        for (TokenId id = 0; id <= end; ++id) {
          if (!matcher.accept(id)) continue;
          matcher.rollback(1);
          tried.push_back(id);
        }
        REQUIRE(may == tried);
        REQUIRE_FALSE(may.empty());
        REQUIRE(matcher.accept(may[random() % may.size()]));
      }
    }
  }
}

}  // namespace
}  // namespace quire::structured
