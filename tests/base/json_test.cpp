#include "base/json.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/temp_path.h"

namespace quire {
namespace {

JsonDocument parsed(std::string text) { return {std::move(text), "f.json"}; }

template <class Read>
std::string complaint(const std::string& text, Read read) {
  try {
    const JsonDocument document = parsed(text);
    read(document.root());
    return {};
  } catch (const Failure& failure) {
    return failure.what();
  }
}

std::string complaint(const std::string& text) {
  return complaint(text, [](const Json&) {});
}

TEST_CASE("values of every kind are read", "[json]") {
  const JsonDocument document = parsed(
      "\xEF\xBB\xBF { \"a\" : [1, -2.5e1, true, false, null, \"x\"],\n\t\"b\":{},\"c\":[] }\r\n");
  const Json root = document.object();
  const auto items = root.at("a").items();
  REQUIRE(items.size() == 6);
  CHECK(items[0].as_integer({}) == 1);
  CHECK(items[1].as_number() == -25.0);
  CHECK(items[1].as_integer({-100, 0}) == -25);
  CHECK(items[2].as_boolean());
  CHECK_FALSE(items[3].as_boolean());
  CHECK(items[4].is_null());
  CHECK(items[5].as_string() == "x");
  CHECK(root.at("b").members().empty());
  CHECK(root.at("c").items().empty());
  CHECK_FALSE(root.has({"d"}));
  std::string names;
  for (const auto [name, value] : root.members()) names += name;
  CHECK(names == "abc");
}

TEST_CASE("escapes are resolved, half a surrogate pair is U+FFFD", "[json]") {
  const auto text = [](const std::string& json) {
    return std::string(parsed(json).root().as_string());
  };
  CHECK(text(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
  CHECK(text(R"("\u00e9\u20AC\ud83d\ude00!")") == "\u00e9\u20ac\U0001F600!");
  CHECK(text(R"("\ud83d")") == "\uFFFD");
  CHECK(text(R"("\ude00a")") == "\uFFFDa");
  CHECK(text(R"("\ud83d\u0041")") == "\uFFFD\u0041");
  CHECK(text(R"("\ud83d\ud83d\ude00")") == "\uFFFD\U0001F600");
  CHECK(text("\"\\u0000\"") == std::string(1, '\0'));
}

TEST_CASE("a value that nobody needs may be anything Python writes", "[json]") {
  const JsonDocument document = parsed(
      R"({"model_max_length": 1000000000000000019884624838656, "a": 1e999, "b": NaN,
          "c": [0, Infinity, null], "d": 123456789012345678901234567890.5e-400, "e": 7,
          "f": -0, "g": 18446744073709551615})");
  CHECK(document.object().integer({"e"}) == 7);
  CHECK(document.object().number({"model_max_length"}) == 1000000000000000019884624838656.0);
  CHECK(document.object().integer({"f"}, {0, 0}) == 0);
  const auto numbers = document.object().numbers({"c"});
  CHECK(numbers == std::vector<double>{0, INFINITY, INFINITY});
}

TEST_CASE("who needs a number gets it whole or a sentence", "[json]") {
  const std::string json = R"({"n": {"big": 1000000000000000019884624838656, "inf": Infinity,
                              "half": 2.5, "over": 1e999, "text": "7"}})";
  const auto wrong = [&](std::string_view name) {
    return complaint(json, [&](const Json& root) { root.at("n").integer({name}, {1, 9}); });
  };
  CHECK(wrong("big") ==
        "f.json: n.big: must be an integer from 1 to 9, is 1000000000000000019884624838656");
  CHECK(wrong("inf") == "f.json: n.inf: must be an integer from 1 to 9, is Infinity");
  CHECK(wrong("half") == "f.json: n.half: must be an integer from 1 to 9, is 2.5");
  CHECK(wrong("text") == "f.json: n.text: must be an integer from 1 to 9, is \"7\"");
  CHECK(complaint(json, [](const Json& root) { root.at("n").number({"over"}); }) ==
        "f.json: n.over: must be a number that a double holds, is 1e999");
}

TEST_CASE("a complaint names the place", "[json]") {
  const std::string json = R"({"a": [0, {"b": [1, 2, {"c": 5}]}, 9], "d": {}})";
  CHECK(complaint(json, [](const Json& root) {
          root.at("a").items()[1].at("b").items()[2].text({"c"});
        }) == "f.json: a[1].b[2].c: must be a string, is 5");
  CHECK(complaint(json, [](const Json& root) { root.at("d").at("e"); }) ==
        "f.json: d.e: is missing");
  CHECK(complaint("[]", [](const Json& root) { root.members(); }) ==
        "f.json: must be an object, is an empty list");
}

TEST_CASE("of members with one name the last counts", "[json]") {
  CHECK(parsed(R"({"a": 1, "a": 2})").object().integer({"a"}) == 2);
  CHECK_FALSE(parsed(R"({"a": 1, "a": null})").object().has({"a"}));
  CHECK(parsed(R"({"old": 1, "new": 2})").object().integer({"new", "old"}) == 2);
}

TEST_CASE("what is not JSON is refused with line and column", "[json]") {
  CHECK(complaint("{\n \"a\\nb\": 1,\n \"c\" 2}") ==
        "f.json: not JSON: expected : at line 3, column 6");
  CHECK(complaint("") ==
        "f.json: not JSON: the text ends where a value should be at line 1, column 1");
  CHECK(complaint("{\"a\": \"\xFF\"}") == "f.json: not JSON: not UTF-8 at line 1, column 8");
  for (const char* text :
       {"{",           "[",           "[1",       "[1,", "[1,]",        "[,1]",    "{\"a\"}",
        "{\"a\":}",    "{\"a\":1,}",  "{a:1}",    "01",  "-",           "1.",      ".5",
        "1e",          "+1",          "tru",      "nul", "\"",          "\"\\",    "\"\\x\"",
        "\"\\u12\"",   "\"\\u12g4\"", "\"a\nb\"", "1 2", "[1]]",        "// c\n1", "/* c */ 1",
        "[1 /* c */]", "'a'",         "-NaN",     "nan", "\xED\xA0\x80"}) {
    INFO(text);
    CHECK(complaint(text).starts_with("f.json: not JSON: "));
  }
}

TEST_CASE("nesting has a limit", "[json]") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(complaint(nested(1000)).empty());
  CHECK(complaint(nested(1001)).find("nested deeper than 1000") != std::string::npos);
  CHECK(complaint(std::string(1 << 20, '{')).starts_with("f.json: not JSON: "));
}

// Everything that a reader may ask of a document, so that sanitizers see it.
std::size_t walk(const Json& value) {
  std::size_t sum = value.path().size() + value.describe().size();
  value.whole_number();
  if (value.is_string()) sum += value.as_string().size();
  if (value.is_array()) {
    for (const Json item : value.items()) sum += walk(item);
  }
  if (value.is_object()) {
    for (const auto [name, member] : value.members()) sum += name.size() + walk(member);
  }
  return sum;
}

TEST_CASE("mutated documents are read or refused", "[json][fuzz]") {
  const std::string seed =
      R"({"a": [1, -2.5e+3, true, false, null, "x\u00e9\ud83d\ude00\n"], "b": {"c": {}, "d": []},
          "e": Infinity, "f": [NaN, "é€"]})";
  std::mt19937 random(7);
  std::size_t read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (unsigned edits = 1 + random() % 4; edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random() % text.size();
      constexpr std::string_view kUseful = "\"\\{}[]:,u0e-.N \n\xC3";
      if (random() % 3 == 0) text.erase(at, 1 + random() % 8);
      if (random() % 3 == 0) text.insert(at, 1, kUseful[random() % kUseful.size()]);
      if (random() % 3 == 0 && at < text.size()) text[at] = static_cast<char>(random());
    }
    try {
      const JsonDocument document = parsed(text);
      walk(document.root());
      ++read;
    } catch (const Failure&) {
    }
  }
  CHECK(read > 1000);
}

TEST_CASE("files have a limit and a name", "[json]") {
  const auto file = temp_path("quire_json_test.json");
  std::ofstream(file) << "{\"a\": 1}";
  CHECK(JsonDocument::read(file, 8).object().integer({"a"}) == 1);
  CHECK_THROWS_WITH(JsonDocument::read(file, 7), Catch::Contains("8 bytes, at most 7"));
  std::filesystem::remove(file);
  CHECK_THROWS_WITH(JsonDocument::read(file, 7), Catch::Contains(file.string()));
}

}  // namespace
}  // namespace quire
