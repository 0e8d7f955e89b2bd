// Lists whose items may not repeat, held against the plain definition.

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/engine/structured/grammars.h"

namespace quire::structured {
namespace {

constexpr auto kSchema = GrammarSpec::Kind::json_schema;

std::string list_of(const std::vector<int>& items) {
  std::string text = "[";
  for (const int item : items) text += (text.size() > 1 ? ", " : "") + std::to_string(item);
  return text + ']';
}

// All lists of up to `most` items out of `values`.
void each_list(const std::vector<int>& values, std::size_t most,
               const std::function<void(const std::vector<int>&)>& see) {
  std::vector<std::vector<int>> lists{{}};
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const std::vector<int> list = lists[i];
    see(list);
    if (list.size() == most) continue;
    for (const int value : values) {
      lists.push_back(list);
      lists.back().push_back(value);
    }
  }
}

TEST_CASE("no value comes twice, however many there are", "[structured][schema][unique]") {
  const auto limits = GENERATE(values<std::pair<int, int>>({{0, 9}, {1, 9}, {2, 3}, {4, 4}, {0, 2}}));
  // 1 begins 11: where a value ends is not said by its digits.
  const auto made = schema(R"({"type":"array","uniqueItems":true,"items":{"enum":[1,11,111,2]},"minItems":)" +
                           std::to_string(limits.first) + R"(,"maxItems":)" + std::to_string(limits.second) + "}");
  each_list({1, 11, 111, 2}, 5, [&](const std::vector<int>& list) {
    const bool is_unique = std::set<int>(list.begin(), list.end()).size() == list.size();
    const auto size = static_cast<int>(list.size());
    INFO(list_of(list));
    CHECK(accepts(made, list_of(list)) == (is_unique && size >= limits.first && size <= limits.second));
  });
}

TEST_CASE("no value comes twice behind items of their own schemas", "[structured][schema][unique]") {
  const auto made = schema(
      R"({"type":"array","uniqueItems":true,"prefixItems":[{"enum":[1,2]},{"enum":[2,3]}],"items":{"enum":[1,2,3]},"minItems":3})");
  each_list({1, 2, 3}, 4, [&](const std::vector<int>& list) {
    const bool is_unique = std::set<int>(list.begin(), list.end()).size() == list.size();
    INFO(list_of(list));
    CHECK(accepts(made, list_of(list)) ==
          (is_unique && list.size() == 3 && list[0] != 3 && list[1] != 1));
  });
  // Whoever begins with 2 could not go on.
  const auto forced = schema(
      R"({"type":"array","uniqueItems":true,"prefixItems":[{"enum":[1,2]},{"const":2}],"items":false,"minItems":2})");
  CHECK(accepts(forced, "[1, 2]"));
  CHECK_FALSE(continues(forced, "[2"));
}

TEST_CASE("many values, whole numbers between bounds and items of different types may be unique",
          "[structured][schema][unique]") {
  std::string many = R"({"type":"array","uniqueItems":true,"minItems":1,"items":{"enum":[)";
  std::string all;
  for (int i = 0; i < 64; ++i) all += (i > 0 ? R"(,")" : R"(")") + std::to_string(i) + '"';
  const auto words = schema(many + all + "]}}");
  CHECK(accepts(words, '[' + all + ']'));
  CHECK(accepts(words, R"(["63"])"));
  CHECK_FALSE(accepts(words, R"(["7","9","7"])"));
  CHECK_FALSE(accepts(words, '[' + all + R"(,"64"])"));
  const auto digits = schema(R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":-2,"exclusiveMaximum":12}})");
  CHECK(accepts(digits, "[11, 1, -2, 0]"));
  for (const char* text : {"[1, 1]", "[12]", "[-3]", "[1, 2, 3, 1]"}) CHECK_FALSE(accepts(digits, text));
  const auto pair = schema(
      R"({"type":"array","uniqueItems":true,"prefixItems":[{"type":"string"},{"type":["number","null"]}],"items":false})");
  CHECK(accepts(pair, R"(["a", 1.5])"));
  CHECK_FALSE(accepts(pair, R"(["a", "a"])"));
  const auto objects = schema(R"({"type":"array","uniqueItems":true,"items":{"enum":[{"a":1},{"a":2},[1]]}})");
  CHECK(accepts(objects, R"([ {"a": 2}, [1], {"a":1} ])"));
  CHECK_FALSE(accepts(objects, R"([{"a":1},{"a": 1}])"));
}

TEST_CASE("of endlessly many texts none comes twice", "[structured][schema][unique]") {
  const auto made = schema(R"({"type":"array","uniqueItems":true,"maxItems":3,"items":{"type":"string","pattern":"^[ab]*$"}})");
  const std::vector<std::string> words = {R"("")", R"("a")", R"("b")", R"("aa")", R"("\u0061")"};
  each_list({0, 1, 2, 3, 4}, 4, [&](const std::vector<int>& list) {
    std::string text = "[";
    std::set<int> values;
    for (const int item : list) {
      text += (text.size() > 1 ? ", " : "") + words[static_cast<std::size_t>(item)];
      values.insert(item == 4 ? 1 : item);
    }
    INFO(text);
    const bool has_escape = std::count(list.begin(), list.end(), 4) > 0;
    const bool is_unique = values.size() == list.size() && list.size() <= 3;
    if (!is_unique || !has_escape) CHECK(accepts(made, text + ']') == is_unique);
  });
  CHECK_FALSE(continues(made, R"(["a","b","aa",)"));
}

TEST_CASE("numbers and texts are told apart by value", "[structured][schema][unique]") {
  const auto any = schema(R"({"type":"array","uniqueItems":true,"items":{"type":["string","number","null","boolean"]}})");
  for (const char* good : {"[]", R"([1, "1", null, true, 1.5, 10, "a\n", 15])", "[-1, 1]", "[0.5, 0.05]"}) {
    INFO(good);
    CHECK(accepts(any, good));
  }
  for (const char* bad : {"[1, 1.0]", "[0, -0]", "[1.50, 1.5]", "[null, null]", R"(["a\n", "a\u000a"])", "[1, 2, 3, 1]", "[100, 1e2]"}) {
    INFO(bad);
    CHECK_FALSE(accepts(any, bad));
  }
}

TEST_CASE("a list that must go on can", "[structured][schema][unique]") {
  const auto made = schema(R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"type":"string","pattern":"^[ab]$"}})");
  CHECK(accepts(made, R"(["b","a"])"));
  CHECK_FALSE(accepts(made, R"(["b"])"));
  CHECK_FALSE(continues(made, R"(["b","a",)"));
  CHECK_FALSE(continues(made, R"(["b","b)"));
  const auto nested = schema(
      R"({"type":"object","properties":{"x":{"type":"array","items":{"type":"array","uniqueItems":true,"items":{"type":"string"}}},"y":{"$ref":"#/properties/x/items"}}})");
  CHECK(accepts(nested, R"({"x": [["a", "b"], ["a"], []], "y": ["b", "a"]})"));
  CHECK_FALSE(accepts(nested, R"({"x": [["a"], ["b", "b"]]})"));
  // Two readings of one text.
  const auto either = schema(
      R"({"anyOf":[{"type":"array","uniqueItems":true,"items":{"type":"string"}},{"type":"array","minItems":3,"maxItems":3,"items":{"type":"string"}}]})");
  CHECK(accepts(either, R"(["a", "a", "b"])"));
  CHECK(accepts(either, R"(["a", "b"])"));
  CHECK_FALSE(accepts(either, R"(["a", "a"])"));
  CHECK_FALSE(accepts(either, R"(["a", "b", "c", "b"])"));
}

TEST_CASE("tokens do not repeat a text, and one is always left", "[structured][schema][unique]") {
  const auto context = tokens({"[", "]", "\"", ",", "a", "b", "\",", "\",\"", "a\"", "a\",", "b\"]"});
  const auto made = schema(R"({"type":"array","uniqueItems":true,"items":{"type":"string","pattern":"^[ab]{1,2}$"}})", context);
  GrammarMatcher matcher(made);
  REQUIRE(matcher.accept_bytes(R"(["a",")"));
  CHECK(allowed(matcher, context) == std::vector<TokenId>{4, 5});  // "a\"" would repeat, "b\"]" reads on behind the item
  REQUIRE(matcher.accept_bytes("a"));
  CHECK(allowed(matcher, context) == std::vector<TokenId>{4, 5, 8});
  REQUIRE(matcher.accept_bytes("b\""));
  CHECK(allowed(matcher, context) == std::vector<TokenId>{1, 3});
}

TEST_CASE("what cannot be told apart by a grammar is refused by its name", "[structured][schema][unique]") {
  const auto c = GENERATE(values<std::pair<const char*, const char*>>({
      {R"({"uniqueItems":true,"type":"array"})", "unsupported /uniqueItems"},
      {R"({"uniqueItems":true,"type":"array","items":{"type":"array"}})", "unsupported /uniqueItems"},
      {R"({"uniqueItems":true,"type":"array","items":{"type":"string"},"contains":{"const":"a"}})", "unsupported /uniqueItems"},
      {R"({"uniqueItems":true,"type":"array","items":{"type":"string"},"minItems":1001})", "unsupported /uniqueItems"},
      {R"({"uniqueItems":true,"type":"array","items":{"type":"string","pattern":"^[ab]$"},"minItems":3})", "unsatisfiable "},
      {R"({"uniqueItems":true,"type":"array","prefixItems":[{"type":"integer"},{"type":"number"}],"items":false})", "unsupported /uniqueItems"},
      {R"({"uniqueItems":true,"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"string"}})", "unsupported /uniqueItems"},
      {R"({"uniqueItems":true,"type":"array","items":{"enum":[1,1.0,2]},"minItems":3})", "unsatisfiable "},
      {R"({"uniqueItems":true,"type":"array","prefixItems":[{"const":1},{"const":1}],"items":false,"minItems":2})", "unsatisfiable "},
  }));
  INFO(c.first);
  CHECK(refusal(kSchema, c.first) == c.second);
}

}  // namespace
}  // namespace quire::structured
