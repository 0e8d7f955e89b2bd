#include "engine/structured/regex/regex_store.h"

#include <catch2/catch.hpp>

#include "engine/structured/regex/pattern.h"

namespace quire::structured {
namespace {

struct Fixture {
  Meter meter;
  GrammarLimits limits;
  RegexStore store{meter, limits};

  RegexId of(std::string_view pattern) {
    return parse_pattern(store, pattern, PatternUse::whole, Spelling::plain);
  }
};

TEST_CASE("equal expressions have one number, whatever way they were built", "[structured][regex]") {
  Fixture f;
  CHECK(f.of("a|b") == f.of("[ab]"));
  CHECK(f.of("abc") == f.store.concat(f.of("ab"), f.of("c")));
  CHECK(f.of("x*x*") != f.of("x*"));
  CHECK(f.store.complement(f.store.complement(f.of("ab"))) == f.of("ab"));
  RegexStore other(f.meter, f.limits);
  const RegexId there = parse_pattern(other, "[ab]c*", PatternUse::whole, Spelling::plain);
  CHECK(other.hash(there) == f.store.hash(f.of("[ab]c*")));
}

TEST_CASE("and, or and not agree with their parts on every short text", "[structured][regex]") {
  Fixture f;
  const RegexId a = f.of("(ab|a)*b?"), b = f.of("[ab]{2,5}"), not_a = f.store.complement(a);
  const RegexId both = f.store.all_of({a, b}), either = f.store.any_of({a, b});
  for (unsigned bits = 0; bits < 64; ++bits) {
    for (unsigned length = 0; length <= 6; ++length) {
      std::string text;
      for (unsigned i = 0; i < length; ++i) text += bits >> i & 1 ? 'b' : 'a';
      INFO(text);
      const bool in_a = f.store.matches(a, text), in_b = f.store.matches(b, text);
      CHECK(f.store.matches(not_a, text) == !in_a);
      CHECK(f.store.matches(both, text) == (in_a && in_b));
      CHECK(f.store.matches(either, text) == (in_a || in_b));
    }
  }
}

TEST_CASE("what can match nothing is found dead, at once and on the way", "[structured][regex]") {
  Fixture f;
  CHECK_FALSE(f.store.alive(f.store.all_of({f.of("a+"), f.of("b+")})));
  CHECK_FALSE(f.store.alive(f.store.all_of({f.of("(aa)+"), f.of("a(aa)*")})));
  RegexId left = f.store.all_of({f.of("a+b?"), f.of("[ab]{3}")});
  CHECK(f.store.alive(left));
  left = f.store.step(f.store.step(left, 'a'), 'b');
  CHECK(left == kNothing);  // ab can no longer become three characters
}

TEST_CASE("multiples are counted digit by digit", "[structured][regex]") {
  Fixture f;
  const RegexId sevens = f.store.multiple(7, 0);
  const RegexId cents = f.store.multiple(25, 2);  // 0.25
  for (int n = 0; n < 500; ++n) {
    INFO(n);
    CHECK(f.store.matches(sevens, std::to_string(n)) == (n % 7 == 0));
    const std::string text = std::to_string(n / 100) + '.' + std::to_string(n / 10 % 10) +
                             std::to_string(n % 10);
    CHECK(f.store.matches(cents, text) == (n % 25 == 0));
  }
  CHECK(f.store.matches(cents, "1.5"));
  CHECK(f.store.matches(cents, "1.5000"));
  CHECK_FALSE(f.store.matches(cents, "1.5001"));
  CHECK_FALSE(f.store.matches(cents, "1."));
}

TEST_CASE("ten thousand literals are told apart", "[structured][regex]") {
  Fixture f;
  std::vector<std::string> texts;
  for (int i = 0; i < 10'000; ++i) texts.push_back("item " + std::to_string(i * 7));
  const RegexId id = f.store.literals(texts);
  CHECK(f.store.matches(id, "item 0"));
  CHECK(f.store.matches(id, "item 69993"));
  CHECK_FALSE(f.store.matches(id, "item 69994"));
  CHECK_FALSE(f.store.matches(id, "item "));
}

}  // namespace
}  // namespace quire::structured
