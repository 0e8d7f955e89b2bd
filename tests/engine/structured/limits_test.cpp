// What would cost without end ends within its budget, with an error that says so.

#include <catch2/catch.hpp>
#include <chrono>

#include "tests/engine/structured/grammars.h"

namespace quire::structured {
namespace {

using Clock = std::chrono::steady_clock;

GrammarContext strict() {
  GrammarContext context;
  context.limits.compile_time = std::chrono::milliseconds(500);
  context.limits.step_time = std::chrono::milliseconds(500);
  context.limits.memory_bytes = 64u << 20;
  return context;
}

// Taken or refused, compilation and a walk through `text` end in time.
void ends_in_time(GrammarSpec::Kind kind, const std::string& source, const std::string& text) {
  const auto from = Clock::now();
  try {
    const auto made = grammar(kind, source, strict());
    GrammarMatcher matcher(made);
    for (const char c : text) {
      if (Clock::now() - from > std::chrono::seconds(10)) break;
      if (!matcher.accept_bytes(std::string_view(&c, 1))) break;
    }
    CHECK(made->memory_bytes() < 128u << 20);
  } catch (const GrammarFailure& failure) {
    INFO(failure.what());
    CHECK((failure.kind() == GrammarErrorKind::limit || failure.kind() == GrammarErrorKind::unsupported));
  }
  CHECK(Clock::now() - from < std::chrono::seconds(15));
}

TEST_CASE("expressions that explode end within the budget", "[structured][limits]") {
  const auto kind = GrammarSpec::Kind::regex;
  std::string as(300, 'a');
  ends_in_time(kind, "(a|b)*a(a|b){40}", as);
  ends_in_time(kind, "(a+)+(a+)+(a+)+(a+)+b", as);
  ends_in_time(kind, "((a{0,1000}){0,1000}){0,1000}", as);
  ends_in_time(kind, "(x+x+)+y", std::string(2'000, 'x'));
  std::string optional;
  for (int i = 0; i < 100'000; ++i) optional += "a?";
  ends_in_time(kind, optional, as);
  ends_in_time(kind, std::string(100'000, '('), "");
}

TEST_CASE("what people write compiles at once", "[structured][limits]") {
  GrammarContext context = strict();
  context.limits.compile_time = std::chrono::milliseconds(200);
  for (const char* source : {
           R"({"type":"string","pattern":"^[a-z ]+$","maxLength":10000})",
           R"({"type":"string","pattern":"foo.*bar$","maxLength":10000})",
           R"({"type":"string","format":"uri","minLength":1,"maxLength":65536})",
           R"({"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"string","pattern":"^\\S","maxLength":8000}}})",
           R"({"type":"number","minimum":-1.7976931348623157e308,"maximum":1.7976931348623157e308})",
           R"({"type":"number","minimum":5e-324,"exclusiveMaximum":1e300})",
       }) {
    INFO(source);
    CHECK(refusal(GrammarSpec::Kind::json_schema, source, context).empty());
  }
  CHECK(refusal(GrammarSpec::Kind::json_schema, R"({"items":{"maxItems":100000,"items":{"type":"string"}}})") == "limit /items");
}

TEST_CASE("a group's end is not looked for from each of its letters", "[structured][limits]") {
  GrammarContext context;
  context.limits.compile_time = std::chrono::seconds(10);
  const std::string word(1'400'000, 'a');  // a TB to look through
  CHECK(refusal(GrammarSpec::Kind::regex, "(" + word + ")", context).empty());
}

TEST_CASE("what is referred to twice costs once", "[structured][limits]") {
  std::string twice = R"({"$ref":"#/$defs/d0","$defs":{)", apart = twice;
  for (int i = 0; i < 30; ++i) {
    const std::string name = "\"d" + std::to_string(i) + "\":{\"allOf\":[";
    const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    twice += name + next + "," + next + "]},";
    apart += name + next + R"(,{"type":"integer","allOf":[)" + next + "]}]},";
  }
  const std::string last = R"("d30":{"type":["integer","string"],"maximum":7}}})";
  GrammarContext context;
  context.limits.disjuncts = 16;
  CHECK(accepts(schema(twice + last, context), "7"));
  CHECK(accepts(schema(twice + last, context), "\"x\""));
  CHECK_FALSE(continues(schema(twice + last, context), "8"));
  CHECK(accepts(schema(apart + last, context), "7"));
  CHECK_FALSE(continues(schema(apart + last, context), "\""));
}

TEST_CASE("schemas that explode end within the budget", "[structured][limits]") {
  const auto kind = GrammarSpec::Kind::json_schema;
  std::string all_of = "{\"allOf\":[";
  for (int i = 0; i < 30; ++i) {
    all_of += (i ? "," : "") + std::string("{\"anyOf\":[{\"minLength\":") + std::to_string(i) +
              "},{\"maxLength\":9},{\"pattern\":\"a\"}]}";
  }
  ends_in_time(kind, all_of + "]}", "\"aaaa\"");
  std::string deep;
  for (int i = 0; i < 5'000; ++i) deep += "{\"items\":";
  ends_in_time(kind, deep, "[");
  deep.clear();
  for (int i = 0; i < 300; ++i) deep += "{\"anyOf\":[{\"type\":\"null\"},";
  deep += "true";
  for (int i = 0; i < 300; ++i) deep += "]}";
  ends_in_time(kind, deep, "null");
  ends_in_time(kind, "{\"type\":\"array\",\"minItems\":2000000000}", "[1,");
  ends_in_time(kind, "{\"type\":\"string\",\"minLength\":2000000000}", "\"" + std::string(500, 'x'));
  ends_in_time(kind, "{\"minProperties\":100000000}", "{\"a\":1");
  std::string lists = "{\"enum\":[";
  for (int i = 0; i < 60'000; ++i) lists += (i ? ",\"value " : "\"value ") + std::to_string(i) + '"';
  ends_in_time(kind, lists + "]}", "\"value 59999\"");
  std::string properties = "{\"properties\":{";
  for (int i = 0; i < 5'000; ++i) {
    properties += (i ? ",\"" : "\"") + std::string("key") + std::to_string(i) + "\":{}";
  }
  ends_in_time(kind, properties + "}}", "{\"key4999\":1}");
  std::string keys, required, patterns;
  for (int i = 0; i < 150'000; ++i) {
    const std::string name = (i ? ",\"key " : "\"key ") + std::to_string(i) + '"';
    required += name;
    keys += name + ":{}";
    patterns += name + ":{}";
  }
  ends_in_time(kind, "{\"properties\":{" + keys + "}}", "{");
  ends_in_time(kind, "{\"required\":[" + required + "]}", "{");
  ends_in_time(kind, "{\"patternProperties\":{" + patterns + "}}", "{");
}

TEST_CASE("a reference that leads back to itself is refused", "[structured][limits]") {
  const auto kind = GrammarSpec::Kind::json_schema;
  CHECK(refusal(kind, "{\"$ref\":\"#\"}") == "syntax ");
  CHECK(refusal(kind, "{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/b\"}]},"
                      "\"b\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"null\"}]}},"
                      "\"$ref\":\"#/$defs/a\"}") == "syntax /$defs/a");
}

TEST_CASE("deep values are followed as far as the limit", "[structured][limits]") {
  const auto any = schema("{}");
  CHECK(accepts(any, std::string(900, '[') + std::string(900, ']')));
  CHECK_FALSE(continues(any, std::string(100'000, '[')));
}

}  // namespace
}  // namespace quire::structured
