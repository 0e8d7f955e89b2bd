// Lists whose items may not repeat, held against the plain definition.

#include <catch2/catch.hpp>

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

TEST_CASE("what cannot be told apart by a grammar is refused by its name", "[structured][schema][unique]") {
  const auto c = GENERATE(values<std::pair<const char*, const char*>>({
      {R"({"uniqueItems":true,"type":"array"})", "unsupported /uniqueItems"},
      {R"({"uniqueItems":true,"type":"array","items":{"type":"integer"}})", "unsupported /uniqueItems"},
      {R"({"uniqueItems":true,"type":"array","items":{"type":"integer","minimum":0,"maximum":64}})", "unsupported /uniqueItems"},
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
