#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "base/utf8.h"
#include "text/tokenizer/split_pattern.h"

namespace quire {

bool operator==(const Span& a, const Span& b) {
  return a.begin == b.begin && a.end == b.end && a.is_match == b.is_match;
}
std::ostream& operator<<(std::ostream& out, const Span& span) {
  return out << span.begin << "-" << span.end << (span.is_match ? "" : " unmatched");
}

namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGptOss =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                                       "\r\n"
                                       R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                                       "\r\n"
                                       R"(]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Characters of every class that the expressions tell apart, the frequent ones several times.
const std::vector<std::u32string> kAlphabets = {
    U"aabTs '",
    U"aZ1 \n'\u00e9.",
    U"'sStTrReEvVmMlLdD\u017f aB",
    U" \t\r\n\u00a0\u2028\u0085\u3000\u180ex/.",
    U"aA\u01c5\u02b0\u4e2d\u0301\u0903 .1\u00df\u03a9",
    U"12\u0663\u00bd\u2167a .",
    U"!$<>~-_+\u00a9\u20ac\u2019\u3002aB /\n\u0007\u200d",
    U"\u4e00\u9fa5\u9fa6\u3040\u309f\u30a0\u30ff\u3100a1",
};

std::string random_text(std::mt19937& random) {
  std::string text;
  for (std::size_t left = random() % 60; left > 0; --left) {
    if (random() % 8 == 0) {
      // Unicode 14 or so: PCRE2 and utf8proc know different versions of what came later.
      const char32_t c = random() % 0x2E80;
      if (c < 0x30 || c > 0x2E5D || (c >= 0xC3C && c < 0xC60) || c == 0xCF3 || c == 0xECE) continue;
      utf8_append(text, c);
    } else {
      const auto& alphabet = kAlphabets[random() % kAlphabets.size()];
      for (std::size_t run = 1 + random() % 6; run > 0; --run) {
        utf8_append(text, alphabet[random() % alphabet.size()]);
      }
    }
  }
  return text;
}

TEST_CASE("the scanners cut where their expressions do", "[text][scanner]") {
  const std::vector<std::string_view> expressions = {kByteLevelExpression,
                                                     kLlama3,
                                                     kQwen3,
                                                     kQwen35,
                                                     kGptOss,
                                                     kTekken,
                                                     kDeepSeek,
                                                     R"(\p{N}{1,3})",
                                                     "[一-龥\u3040-ゟ゠-ヿ]+"};
  const std::string expression(expressions[GENERATE(range(0, 9))]);
  INFO(expression);
  const auto scanner = find_scanner(expression);
  REQUIRE(scanner);
  const auto pcre = make_pcre_pattern(expression);
  std::mt19937 random(7);
  std::vector<Span> scanned, matched;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = random_text(random);
    scanner->find(text, scanned);
    pcre->find(text, matched);
    INFO(text);
    REQUIRE(scanned == matched);
  }
}

TEST_CASE("Oniguruma's reading of an expression", "[text][pattern]") {
  struct Case {
    std::string_view expression, text;
    std::vector<std::string> matches;
  };
  const std::vector<Case> cases = {
      {R"(\s)", "a\u180eb\u0085c", {"\u0085"}},  // U+180E is no space
      {R"([\S]+)", "a\u180e b", {"a\u180e", "b"}},
      {R"(\w+)", "a½ _\u24b6-", {"a½", "_\u24b6"}},  // ½ only outside of a class
      {R"([\w]+)", "a½", {"a"}},
      {R"(\h+)", "fg9", {"f", "9"}},     // a hexadecimal digit
      {R"(a{1,2}+)", "aaaa", {"aaaa"}},  // repeats, is not possessive
      {R"((?:ab){2}+c)", "ababababc", {"ababababc"}},
      {R"((?m:a.b))", "a\nb", {"a\nb"}},  // the dot matches newlines
      {R"(^a)", "a\na", {"a", "a"}},      // ^ matches at lines
      {R"([[:punct:]])", "a+b", {"+"}},
      {R"((?i:K))", "\u212a", {"\u212a"}},
      {R"(\p{^L}+)", "a1b", {"1"}},
      {R"(a\b.?)", "a\u0301 a-", {"a-"}},  // a mark belongs to the word
      {R"($)", "", {}},
      {R"(\u00e9)", "é", {"é"}},
  };
  for (const Case& test : cases) {
    INFO(test.expression);
    std::vector<Span> spans;
    make_pcre_pattern(test.expression)->find(test.text, spans);
    std::vector<std::string> matches;
    for (const Span& span : spans) {
      if (span.is_match) matches.emplace_back(test.text.substr(span.begin, span.end - span.begin));
    }
    CHECK(matches == test.matches);
  }
}

// What of the text the expression matches, one after the other.
std::string matches(std::string_view expression, std::string_view text) {
  std::vector<Span> spans;
  make_regex_pattern(expression)->find(text, spans);
  std::string found;
  for (const Span& span : spans) {
    if (span.is_match) found += std::string(text.substr(span.begin, span.end - span.begin)) + ";";
  }
  return found;
}

TEST_CASE("classes in classes are unions and intersections, as Oniguruma reads them", "[text]") {
  // Bloom's.
  constexpr std::string_view kBloom = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
  CHECK(matches(kBloom, "Hi there, you|me。(x)") == "Hi; there; you;me;x;");
  // Kimi's: letters that are not Chinese, and those that are.
  CHECK(matches(R"([\p{Han}]+|[\p{Lu}\p{Lo}\p{Ll}&&[^\p{Han}]]+)", "Abc漢字défア.") ==
        "Abc;漢字;défア;");
  CHECK(matches("[a[b]c]+", "abcd[]") == "abc;");
  CHECK(matches("[a[^b-y]c]+", "abcz!d") == "a;cz!;");
  CHECK(matches("[^a[^bc]]+", "abcda") == "bc;");
  CHECK(matches("[a-z&&[^aeiou]]+", "quire bcd") == "q;r;bcd;");
  CHECK(matches("[^a-z&&[^aeiou]]+", "quire!") == "ui;e!;");
  CHECK(matches(R"([\W_]+)", "a_b -c") == "_; -;");
  CHECK(matches(R"([^\H]+)", "xyz0Ag") == "0A;");
  CHECK(matches("[]a[]-]]{2}", "a]-]a") == "a];-];");
  CHECK(matches("[[a][b]]{2}", "abba") == "ab;ba;");
  CHECK_THROWS_WITH(matches(std::string(1 << 20, '['), "a"), Catch::Contains("too deep"));
}

}  // namespace
}  // namespace quire
