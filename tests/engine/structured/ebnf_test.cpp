#include <catch2/catch.hpp>
#include <random>

#include "tests/engine/structured/grammars.h"

namespace quire::structured {
namespace {

TEST_CASE("a grammar is context-free, whatever looks like a token", "[structured][ebnf]") {
  const auto g = ebnf("root ::= (\"ab\" | \"a\") \"bc\"");
  CHECK(accepts(g, "abc"));
  CHECK(accepts(g, "abbc"));
  CHECK_FALSE(accepts(g, "ab"));
}

TEST_CASE("left recursion of every kind is read", "[structured][ebnf]") {
  const auto direct = ebnf("root ::= root \"-\" n | n\nn ::= [0-9]+");
  CHECK(accepts(direct, "1-22-3"));
  CHECK_FALSE(accepts(direct, "1--2"));
  CHECK(continues(direct, "1-2-"));
  const auto mutual = ebnf("root ::= a \"x\" | \"r\"\na ::= root \"y\" | \"a\"");
  for (const char* text : {"r", "ax", "ryx", "axyx", "ryxyx"}) CHECK(accepts(mutual, text));
  for (const char* text : {"a", "rx", "axx", "ay"}) CHECK_FALSE(accepts(mutual, text));
  const auto hidden = ebnf("root ::= o root \"x\" | \"b\"\no ::= \"-\"?");
  for (const char* text : {"b", "bx", "-bxx", "-bx", "bxxx"}) CHECK(accepts(hidden, text));
  CHECK_FALSE(accepts(hidden, "--bx"));
  const auto both = ebnf("root ::= root root | \"(\" root \")\" | \"a\"");
  for (const char* text : {"a", "aa", "(a)a(aa)", "((a))"}) CHECK(accepts(both, text));
  CHECK_FALSE(accepts(both, "()"));
}

TEST_CASE("what a grammar leaves out is said with its line", "[structured][ebnf]") {
  const auto kind = GrammarSpec::Kind::ebnf;
  for (const char* text : {"", "a ::= \"x\"", "root ::= foo", "root ::= \"a\" |", "root := \"a\"",
                           "root ::= (\"a\"", "root ::= \"a\nroot ::= \"b\"",
                           "root ::= \"a\"\nroot ::= \"b\""}) {
    INFO(text);
    CHECK(refusal(kind, text) == "syntax ");
  }
  CHECK(refusal(kind, "root ::= \"a\" root") == "unsatisfiable ");
  CHECK(refusal(kind, "root ::= a\na ::= a | root") == "unsatisfiable ");
  CHECK_THROWS_WITH(ebnf("root ::= \"a\"\n\nx ::= y"), Catch::Contains("line 3"));
}

TEST_CASE("an alternative that is empty may come first", "[structured][ebnf]") {
  const auto json_space = ebnf("root ::= \"a\" ws \"b\"\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}");
  for (const char* text : {"ab", "a b", "a\n  b"}) CHECK(accepts(json_space, text));
  CHECK_FALSE(accepts(json_space, "a  b"));
  CHECK(accepts(ebnf("root ::= \"a\" ( | \"b\")"), "a"));
}

TEST_CASE("Lark's notation is read", "[structured][ebnf][lark]") {
  const auto sql = ebnf(R"(
?start: select_statement
?select_statement: "SELECT " column_list " FROM " table_name
column_list: column ("," " "? column)*   // one or more
?column.2: "a" | "b" -> second
table_name: /[a-z]+/ )");
  for (const char* text : {"SELECT a FROM t", "SELECT a, b,a FROM users"}) CHECK(accepts(sql, text));
  for (const char* text : {"SELECT c FROM t", "SELECT a FROM T", "SELECT a,  b FROM t"}) CHECK_FALSE(accepts(sql, text));
  const auto sum = ebnf(R"lark(
start: sum
sum: product
   | sum ("+" | "-") product
product: atom | product "*" atom
atom: NUMBER | "-" atom | "(" sum ")"
%import common.NUMBER
%import common (WS_INLINE, CNAME)
%ignore WS_INLINE)lark");
  for (const char* text : {"1 + 2*( 3.5e2 -1 )", "1+2", "-1 * 2"}) {
    INFO(text);
    CHECK(accepts(sum, text));
  }
  for (const char* text : {"1 +", "1 + a", "1\n+2"}) CHECK_FALSE(accepts(sum, text));
  const auto rest = ebnf("start: KEY \"=\" [VALUE] \"!\" ~ 2..3\nKEY: \"set\"i\nVALUE: \"a\"..\"f\" | /x\\/y/i");
  for (const char* text : {"SeT=!!", "set=c!!!", "set=X/y!!"}) CHECK(accepts(rest, text));
  for (const char* text : {"set=g!!", "set=!", "sett=!!"}) CHECK_FALSE(accepts(rest, text));
}

TEST_CASE("what of Lark is not read is refused with its line", "[structured][ebnf][lark]") {
  const auto kind = GrammarSpec::Kind::ebnf;
  for (const char* text : {"start: a{b}\na{x}: x", "start: A\n%import python.NAME", "start: A\n%declare A", "start: /a/x",
                           "start: A\n%import common.NOTHING", "start: /(?=a)b/"}) {
    INFO(text);
    CHECK(refusal(kind, text) == "unsupported ");
  }
  for (const char* text : {"start: nowhere", "start: \"a", "start: (\"a\"", "begin: \"a\"", "start: \"a\"\nstart: \"b\"",
                           "start: \"b\"..\"a\"", "start: /[/"}) {
    INFO(text);
    CHECK(refusal(kind, text) == "syntax ");
  }
  CHECK(refusal(kind, "start: \"a\" start") == "unsatisfiable ");
  CHECK_THROWS_WITH(ebnf("start: a\n\na: b"), Catch::Contains("line 3"));
}

// Any context-free grammar in Chomsky's normal form, and the textbook's table for it.
TEST_CASE("random grammars agree with the CYK table", "[structured][ebnf]") {
  std::mt19937 random(3);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int taken = 0;
  for (int round = 0; round < 200; ++round) {
    constexpr int kRules = 4;
    std::vector<std::vector<std::pair<int, int>>> pairs(kRules);
    std::vector<std::string> letters(kRules);
    const char* names[] = {"root", "p", "q", "s"};
    std::string text;
    for (int r = 0; r < kRules; ++r) {
      text += std::string(names[r]) + " ::= ";
      for (int n = 1 + pick(3), i = 0; i < n; ++i) {
        if (i > 0) text += " | ";
        if (pick(2)) {
          const char letter = static_cast<char>('a' + pick(2));
          letters[static_cast<std::size_t>(r)] += letter;
          text += '"' + std::string(1, letter) + '"';
        } else {
          const int x = pick(kRules), y = pick(kRules);
          pairs[static_cast<std::size_t>(r)].emplace_back(x, y);
          text += std::string(names[x]) + ' ' + names[y];
        }
      }
      text += '\n';
    }
    INFO(text);
    if (!refusal(GrammarSpec::Kind::ebnf, text).empty()) continue;
    ++taken;
    const auto g = ebnf(text);
    for (int k = 0; k < 30; ++k) {
      const auto length = static_cast<std::size_t>(1 + pick(7));
      std::string word;
      for (std::size_t i = 0; i < length; ++i) word += static_cast<char>('a' + pick(2));
      // derives[i][n]: bit r when rule r derives word[i, i + n)
      std::vector<std::vector<unsigned>> derives(length, std::vector<unsigned>(length + 1));
      for (std::size_t n = 1; n <= length; ++n) {
        for (std::size_t i = 0; i + n <= length; ++i) {
          for (unsigned r = 0; r < kRules; ++r) {
            bool yes = n == 1 && letters[r].find(word[i]) != std::string::npos;
            for (const auto& [x, y] : pairs[r]) {
              for (std::size_t m = 1; m < n; ++m) {
                yes |= (derives[i][m] >> x & 1) && (derives[i + m][n - m] >> y & 1);
              }
            }
            if (yes) derives[i][n] |= 1u << r;
          }
        }
      }
      INFO(word);
      CHECK(accepts(g, word) == bool(derives[0][length] & 1));
    }
  }
  CHECK(taken > 60);
}

TEST_CASE("an ambiguous grammar stays small over a long text", "[structured][ebnf][limits]") {
  const auto g = ebnf("root ::= root root root | root root | \"a\"");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t kLength = 100;  // more would take the processor time that a mask may
#else
  constexpr std::size_t kLength = 400;
#endif
  CHECK(accepts(g, std::string(kLength, 'a')));
  CHECK(g->memory_bytes() < 64u << 20);
}

}  // namespace
}  // namespace quire::structured
