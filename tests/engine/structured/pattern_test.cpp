#include <catch2/catch.hpp>
#include <random>
#include <regex>

#include "tests/engine/structured/grammars.h"

namespace quire::structured {
namespace {

TEST_CASE("a regular expression matches the whole text", "[structured][pattern]") {
  struct Case {
    const char *pattern, *yes, *no;
  };
  const auto c = GENERATE(values<Case>({{"a{2,3}", "aaa", "aaaa"},
                                        {"^(ab|cd)$", "cd", "ac"},
                                        {"[^\\d\\s]+", "ab", "a1"},
                                        {"a.c", "a\xc3\xa9" "c", "a\nc"},
                                        {"(?i)quire", "QuIrE", "squire"},
                                        {"\\u{1F600}", "\xf0\x9f\x98\x80", "x"},
                                        {"(?<year>[0-9]{4})-x", "2026-x", "26-x"},
                                        {"[\\]\\-a]*", "]-a", "b"},
                                        {"\\p{L}+", "\xc3\xa9q", "a1"},
                                        {"\\p{Lu}\\pN\\P{Letter}", "\xc3\x89" "5-", "\xc3\xa9" "5-"},
                                        {"[\\p{gc=Nd}_\\P{ASCII}]*", "_7\xc3\xa9", "a"},
                                        {"[^\\p{General_Category=Letter}]", "1", "\xce\xb1"},
                                        {"\\p{Any}", "\xf0\x9f\x98\x80", ""},
                                        {"a$b?", "a", "ab"},
                                        {"c*^(ab|cd)$", "ab", "cab"},
                                        {"^[\\w-.]+$", "a-b.c", "a+b"},
                                        {"[a\\d-z]", "-", "y"},
                                        {"(?i:ab)c(?s:.)", "aBc\n", "abC\n"},
                                        {"x*?y+?", "xy", "x"}}));
  INFO(c.pattern);
  CHECK(accepts(regex(c.pattern), c.yes));
  CHECK_FALSE(accepts(regex(c.pattern), c.no));
}

TEST_CASE("what is no regular expression, or no regular one, is refused", "[structured][pattern]") {
  const auto kind = GrammarSpec::Kind::regex;
  for (const char* text : {"(a", "a)", "[a", "*a", "a**", "a{3,2}", "[z-a]", "a\\", "\\q", "\\xg0"}) {
    INFO(text);
    CHECK(refusal(kind, text) == "syntax ");
  }
  for (const char* text : {"(?=a)b", "(?!a)b", "(?<=a)b", "(a)\\1", "\\bword", "x(a$|b)c", "(^a)*",
                           "\\p{Script=Greek}", "\\p{Letters}", "a{,3}", "\\[[^]]*\\]", "[]]", "[]a]"}) {
    INFO(text);
    CHECK(refusal(kind, text) == "unsupported ");
  }
  CHECK(refusal(kind, "a{2000000}") == "limit ");
  for (const char* text : {"[]", "a$b", "a^", "(x$|y$)z"}) {
    INFO(text);
    CHECK(refusal(kind, text) == "unsatisfiable ");
  }
  for (const char* text : {"\\p", "\\p{", "\\p{L", "[\\p{L]"}) {
    INFO(text);
    CHECK(refusal(kind, text).starts_with("syntax"));
  }
  std::string many;
  for (int i = 0; i < 1'000; ++i) many += "\\p{L}";
  CHECK(refusal(kind, many) == "limit ");
}

// Against std::regex, which reads the same dialect; texts are ASCII.
TEST_CASE("random expressions agree with the standard library's", "[structured][pattern]") {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto build = [&](const auto& self, int depth) -> std::string {
    switch (depth == 0 ? pick(3) : pick(8)) {
      case 0: return std::string(1, static_cast<char>('a' + pick(3)));
      case 1: return "[ab]";
      case 2: return "[^a]";
      case 3: return "(?:" + self(self, depth - 1) + "|" + self(self, depth - 1) + ")";
      case 4: return "(?:" + self(self, depth - 1) + ")*";
      case 5: return "(?:" + self(self, depth - 1) + "){1,2}";
      case 6: return "(?:" + self(self, depth - 1) + ")?";
      default: return self(self, depth - 1) + self(self, depth - 1);
    }
  };
  for (int i = 0; i < 300; ++i) {
    const std::string pattern = build(build, 3);
    INFO(pattern);
    const auto mine = regex(pattern);
    const std::regex theirs(pattern);
    for (int k = 0; k < 40; ++k) {
      std::string text;
      for (int n = pick(6); n > 0; --n) text += static_cast<char>('a' + pick(3));
      INFO(text);
      CHECK(accepts(mine, text) == std::regex_match(text, theirs));
    }
  }
}

// A search that begins with ^, as schemas have it.
TEST_CASE("look-ahead agrees with the standard library's", "[structured][pattern]") {
  std::mt19937 random(23);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto build = [&](const auto& self, int depth) -> std::string {
    switch (depth == 0 ? pick(3) : pick(9)) {
      case 0: return std::string(1, static_cast<char>('a' + pick(3)));
      case 1: return "[ab]";
      case 2: return ".*c";
      case 3: return "(?:" + self(self, depth - 1) + "|" + self(self, depth - 1) + ")";
      case 4: return "(?=" + self(self, depth - 1) + (pick(3) == 0 ? "$)" : ")");
      case 5: return "(?!" + self(self, depth - 1) + (pick(3) == 0 ? "$)" : ")");
      case 6: return "(?:" + self(self, depth - 1) + "){1,2}";
      case 7: return "(?:" + self(self, depth - 1) + ")?";
      default: return self(self, depth - 1) + self(self, depth - 1);
    }
  };
  int taken = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string pattern = "^" + build(build, 3) + (pick(2) == 0 ? "$" : "");
    const std::string source = R"({"type":"string","pattern":")" + pattern + "\"}";
    INFO(pattern);
    std::shared_ptr<CompiledGrammar> mine;
    try {
      mine = schema(source);
    } catch (const GrammarFailure& failure) {
      CHECK(failure.kind() == GrammarErrorKind::unsatisfiable);
    }
    taken += mine != nullptr;
    const std::regex theirs(pattern);
    for (int k = 0; k < 40; ++k) {
      std::string text;
      for (int n = pick(6); n > 0; --n) text += static_cast<char>('a' + pick(3));
      INFO(text);
      CHECK((mine != nullptr && accepts(mine, '"' + text + '"')) == std::regex_search(text, theirs));
    }
  }
  CHECK(taken > 200);
  for (const char* pattern : {"(?=a)b", "a(?!b)", "^(?:(?=a)a)*$", "^(?<!a)b", "^(?<=a)b"}) {
    INFO(pattern);
    CHECK(refusal(GrammarSpec::Kind::json_schema, std::string(R"({"pattern":")") + pattern + "\"}") == "unsupported /pattern");
  }
  CHECK(refusal(GrammarSpec::Kind::regex, "^(?=a)a") == "unsupported ");
}

TEST_CASE("mangled expressions are refused or taken, never a crash", "[structured][pattern][fuzz]") {
  std::mt19937 random(11);
  const std::string seed = "^(?:[a-z\\d]{2,3}|\\u00e9+)*(?<n>x|y)?[^\\s\\]]$|\\(";
  for (int i = 0; i < 3'000; ++i) {
    std::string text = seed;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % text.size();
      if (random() % 2) {
        text[at] = seed[random() % seed.size()];
      } else {
        text.erase(at, 1 + random() % 3);
      }
      if (text.empty()) text = "a";
    }
    refusal(GrammarSpec::Kind::regex, text);
  }
}

}  // namespace
}  // namespace quire::structured
