// What the constraint of a required call allows is what the parser reads as that call.

#include "text/output/output_constraint.h"

#include <catch2/catch.hpp>
#include <random>

#include "jinja/values/dict.h"
#include "jinja/values/json.h"
#include "tests/text/output_case.h"
#include "text/output/json_scanner.h"

using namespace quire;
using namespace quire::test;
using jinja::Dict;
using jinja::Value;

namespace {

const char* const kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "strict": true, "parameters": {
    "type": "object", "required": ["city"], "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
      "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}}}},
  {"type": "function", "function": {"name": "note", "parameters": {
    "type": "object", "properties": {
      "tags": {"type": "array", "items": {"$ref": "#/$defs/T"}}, "title": {"type": "string"}},
    "$defs": {"T": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "get_time"}}])";

Value member(const Value& of, std::string_view name) {
  const Value* found = of.is(Value::Kind::dict) ? of.dict().find(name) : nullptr;
  return found == nullptr ? Value() : *found;
}

// Writes one of the texts that a format allows.
class Writer {
 public:
  explicit Writer(unsigned seed) : random_(seed) {}

  std::string write(const Value& format) {
    const std::string type = member(format, "type").string();
    if (type == "const_string") return member(format, "value").string();
    if (type == "any_text") return "Ünïcode < 3";
    if (type == "json_schema") return json(member(format, "json_schema"));
    if (type == "answer") return "The answer.";
    if (type == "regex") return matching(member(format, "pattern").string());
    if (type == "sequence") {
      std::string text;
      for (const Value& one : member(format, "elements").items()) text += write(one);
      return text;
    }
    if (type == "or") return write(pick(member(format, "elements")));
    if (type == "tag") {
      return member(format, "begin").string() + write(member(format, "content")) +
             member(format, "end").string();
    }
    if (type == "tags_with_separator") {
      const Value least = member(format, "at_least_one");
      if (!least.boolean() && random_() % 2 == 0) return "";
      std::string text = write(pick(member(format, "tags")));
      while (random_() % 2 == 0) {
        text += member(format, "separator").string() + write(pick(member(format, "tags")));
      }
      return text;
    }
    REQUIRE(type == "triggered_tags");
    return "Let me see. " + write(pick(member(format, "tags")));
  }

 private:
  static std::string matching(const std::string& pattern) {
    if (pattern.starts_with("[ ")) return "\n\n";
    if (pattern.starts_with("[0-9]")) return "7";
    if (pattern.ends_with("=")) return "key=";
    return "key";
  }

  const Value& pick(const Value& list) { return list.items()[random_() % list.items().size()]; }

  std::string json(const Value& schema) {
    const Value type = member(schema, "type");
    const Value properties = member(schema, "properties");
    if (member(schema, "enum").is(Value::Kind::list)) {
      return jinja::dump_json(pick(member(schema, "enum")), {});
    }
    if (type.is_string() && type.string() == "integer") return "-17";
    if (type.is_string() && type.string() == "boolean") return "true";
    if (type.is_string() && type.string() == "array") return R"(["a \" ]", "b\n"])";
    if (type.is_string() && type.string() == "string") return R"("Zürich, }] \"x\" \u00e9")";
    std::string text;
    if (properties.is(Value::Kind::dict)) {
      for (const auto& [key, property] : properties.dict()) {
        text += (text.empty() ? "" : ", ") + jinja::dump_json(key, {}) + ": " + json(property);
      }
    }
    return "{" + text + "}";
  }

  std::mt19937 random_;
};

std::string constraint(const OutputFormat& format, OutputDemand demand = {},
                       CallDemand calls = CallDemand::required, std::string_view tools = kTools) {
  demand.calls = calls;
  demand.tools = tools;
  return output_constraint(format, demand);
}

std::string write(const std::string& constraint, unsigned seed) {
  return Writer(seed).write(member(jinja::parse_json(constraint), "format"));
}

OutputFormat format_of(const Dialect& dialect, const ReasoningFormat* reasoning = nullptr) {
  OutputFormat format{.dialect = &dialect, .reasoning = reasoning};
  format.types = std::make_shared<const ToolTypes>(kTools);
  return format;
}

}  // namespace

TEST_CASE("what a required call may be written as is read as calls alone", "[text][constraint]") {
  for (const Dialect& dialect : dialects()) {
    for (const bool inside : {false, true}) {
      OutputFormat format =
          format_of(dialect, dialect.channels ? nullptr : find_reasoning_format("think"));
      format.starts_inside = inside && !dialect.channels;
      const std::string allowed = constraint(format);
      for (unsigned seed = 0; seed < 40; ++seed) {
        const std::string text = write(allowed, seed);
        INFO(dialect.name << " " << text);
        const Parsed parsed = parse(format, {text});
        CHECK(parsed.content.empty());
        CHECK(parsed.complaint.empty());
        REQUIRE_FALSE(parsed.calls.empty());
        for (const Call& call : parsed.calls) {
          REQUIRE(JsonScanner::accepts(call.arguments));
          const Value arguments = jinja::parse_json(call.arguments);
          if (call.name == "get_weather") CHECK(member(arguments, "city").is_string());
        }
      }
    }
  }
}

TEST_CASE("one function, and one call", "[text][constraint]") {
  for (const Dialect& dialect : dialects()) {
    const OutputFormat format = format_of(dialect);
    const std::string one = constraint(format, {.parallel = false, .only = {"get_time"}});
    for (unsigned seed = 0; seed < 10; ++seed) {
      const Parsed parsed = parse(format, {write(one, seed)});
      INFO(dialect.name << " " << parsed);
      REQUIRE(parsed.calls.size() == 1);
      CHECK(parsed.calls[0] == Call{"get_time", "{}"});
    }
  }
}

TEST_CASE("strict functions bind a call from where it begins, and nothing else",
          "[text][constraint]") {
  const OutputFormat format = format_of(*find_dialect("hermes"));
  const std::string strict = constraint(format, {}, CallDemand::automatic);
  CHECK(strict.find(R"("triggers": ["<tool_call>"])") != std::string::npos);
  CHECK(strict.find(R"("city")") != std::string::npos);
  CHECK(strict.find("T\": {\"type\": \"string\"}") == std::string::npos);  // note is not strict
  const Parsed parsed = parse(format, {write(strict, 1)});
  CHECK(parsed.content == "Let me see.");
  CHECK(parsed.calls.size() == 1);
}

TEST_CASE("a call of the model's own choice is read as one, whatever the dialect",
          "[text][constraint]") {
  for (const Dialect& dialect : dialects()) {
    const OutputFormat format = format_of(dialect);
    const std::string allowed = constraint(format, {}, CallDemand::automatic);
    int called = 0;
    for (unsigned seed = 0; seed < 40; ++seed) {
      const std::string text = write(allowed, seed);
      INFO(dialect.name << " " << text);
      const Parsed parsed = parse(format, {text});
      CHECK(parsed.complaint.empty());
      for (const Call& call : parsed.calls) REQUIRE(JsonScanner::accepts(call.arguments));
      called += parsed.calls.empty() ? 0 : 1;
    }
    CHECK(called > 0);
  }
}

TEST_CASE("an answer's format comes after the thought, between the family's marks",
          "[text][constraint]") {
  for (const ReasoningFormat& reasoning : reasoning_formats()) {
    for (const bool inside : {false, true}) {
      OutputFormat format{.reasoning = &reasoning, .starts_inside = inside && !reasoning.channels};
      OutputDemand demand;
      demand.answer = R"({"type": "regex", "pattern": "x"})";
      const std::string allowed = output_constraint(format, demand);
      for (unsigned seed = 0; seed < 20; ++seed) {
        const std::string text = write(allowed, seed);
        INFO(reasoning.name << " " << text);
        const Parsed parsed = parse(format, {text});
        CHECK(parsed.content.ends_with("The answer."));
        if (!reasoning.channels) CHECK(parsed.content == "The answer.");
      }
    }
  }
}

TEST_CASE("where nothing is demanded nothing is constrained", "[text][constraint]") {
  OutputFormat format{.reasoning = find_reasoning_format("think")};
  CHECK(output_constraint(format, {}).empty());
  CHECK(output_constraint({}, {.thinking_budget = 3}).empty());
  const std::string budget = output_constraint(format, {.thinking_budget = 3});
  CHECK(budget.find(R"("budget": 3)") != budget.npos);
  CHECK(budget.find(R"("close": ["</think>"])") != budget.npos);
}
