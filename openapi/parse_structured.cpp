// What the answer must be like: response_format, structured_outputs, guided_*, bad_words.

#include <fmt/format.h>

#include "openapi/parse_generation.h"

namespace quire::openapi {

namespace {

using Kind = OutputGrammar::Kind;

constexpr std::size_t kMaxBadWords = 1024;

bool set_grammar(JsonReader& reader, GenerationRequest& out, Kind kind, std::string text) {
  if (out.grammar) {
    return reader.fail(
        fmt::format("contradicts {}: an answer has one form", out.grammar->place));
  }
  out.grammar = OutputGrammar{kind, std::move(text), reader.pointer()};
  return true;
}

// JSON, or JSON as text.
bool json_of(JsonReader& reader, JsonElement element, std::string& out) {
  std::string_view text;
  if (element.get(text)) {
    out = reader.text(element);
    return true;
  }
  return reader.read_json(text, out);
}

bool set_schema(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  std::string schema;
  if (!json_of(reader, element, schema)) return false;
  if (schema.front() != '{' && schema != "true" && schema != "false") {
    return reader.expected("a JSON schema", element);
  }
  return set_grammar(reader, out, Kind::json_schema, std::move(schema));
}

template <Kind kKind>
bool set_text(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  std::string text;
  if (!read(reader, element, text)) return false;
  if (text.empty()) return reader.fail("must not be empty");
  return set_grammar(reader, out, kKind, std::move(text));
}

bool set_choice(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  std::vector<std::string> choices;
  if (!read(reader, element, choices)) return false;
  if (choices.empty()) return reader.fail("must not be empty");
  return set_grammar(reader, out, Kind::choice, reader.text(element));
}

bool set_tag(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  std::string tag;
  if (!json_of(reader, element, tag)) return false;
  if (tag.front() != '{') return reader.expected("an object", element);
  return set_grammar(reader, out, Kind::structural_tag, std::move(tag));
}

bool set_object(JsonReader& reader, GenerationRequest& out) {
  return set_grammar(reader, out, Kind::json_schema, R"({"type":"object"})");
}

bool read_schema_format(JsonReader& reader, simdjson::dom::object format, GenerationRequest& out) {
  JsonElement element, schema;
  if (format["json_schema"].get(element)) return reader.fail("json_schema is missing");
  return reader.in_member("json_schema", [&] {
    simdjson::dom::object object;
    if (element.get(object)) return reader.expected("an object", element);
    if (JsonElement strict; !object["strict"].get(strict) && !strict.is_bool() && !strict.is_null()) {
      return reader.in_member("strict", [&] { return reader.expected("a boolean", strict); });
    }
    if (object["schema"].get(schema) || schema.is_null()) return reader.fail("schema is missing");
    return reader.in_member("schema", [&] {
      if (!schema.is_object() && !schema.is_bool()) return reader.expected("an object", schema);
      return set_schema(reader, schema, out);
    });
  });
}

bool read_json_object(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  bool wanted = false;
  if (!read(reader, element, wanted)) return false;
  return !wanted || set_object(reader, out);
}
bool read_whitespace_pattern(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  out.whitespace_place = reader.pointer();
  return read(reader, element, out.whitespace_pattern);
}
bool read_no_whitespace(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  bool none = false;
  if (!read(reader, element, none)) return false;
  out.any_whitespace = !none;
  return true;
}
// Objects that name their properties are closed without being asked; others say what they are.
bool read_no_additional(JsonReader& reader, JsonElement element, GenerationRequest&) {
  bool none = false;
  if (!read(reader, element, none)) return false;
  return !none || reader.fail("is not supported: an object that names its properties is closed as it "
                              "is, others close with additionalProperties: false");
}
// There is one engine for all grammars: nothing to fall back to.
bool read_no_fallback(JsonReader& reader, JsonElement element, GenerationRequest&) {
  bool none = false;
  return read(reader, element, none);
}

constexpr std::array kStructured = {
    JsonMember<GenerationRequest>{"json", set_schema},
    JsonMember<GenerationRequest>{"regex", set_text<Kind::regex>},
    JsonMember<GenerationRequest>{"choice", set_choice},
    JsonMember<GenerationRequest>{"grammar", set_text<Kind::grammar>},
    JsonMember<GenerationRequest>{"json_object", read_json_object},
    JsonMember<GenerationRequest>{"structural_tag", set_tag},
    JsonMember<GenerationRequest>{"whitespace_pattern", read_whitespace_pattern},
    JsonMember<GenerationRequest>{"disable_any_whitespace", read_no_whitespace},
    JsonMember<GenerationRequest>{"disable_fallback", read_no_fallback},
    JsonMember<GenerationRequest>{"disable_additional_properties", read_no_additional},
};

}  // namespace

std::string_view member_of(const OutputGrammar& grammar) {
  const std::string_view place = std::string_view(grammar.place).substr(1);
  return place.substr(0, place.find('/'));
}

bool read_response_format(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  simdjson::dom::object object;
  if (element.get(object)) return reader.expected("an object", element);
  JsonElement given, schema;
  std::string type;
  if (object["type"].get(given)) return reader.fail("type is missing");
  if (!reader.in_member("type", [&] { return read(reader, given, type); })) return false;
  if (type == "text") return true;
  if (type == "json_schema") return read_schema_format(reader, object, out);
  if (type == "structural_tag") return set_tag(reader, element, out);
  if (type == "json_object") {
    if (object["schema"].get(schema) || schema.is_null()) {
      return set_object(reader, out);
    }
    return reader.in_member("schema", [&] { return set_schema(reader, schema, out); });
  }
  return reader.in_member("type", [&] {
    return reader.fail("must be text, json_object, json_schema or structural_tag");
  });
}

bool read_structured_outputs(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  simdjson::dom::object object;
  if (element.get(object)) return reader.expected("an object", element);
  std::vector<std::string> unknown;
  const bool had_grammar = out.grammar.has_value();
  if (!read_members<GenerationRequest>(reader, object, kStructured, out, &unknown)) return false;
  if (!unknown.empty()) {
    return reader.in_member(unknown.front(), [&] {
      return reader.fail(
          "is not known; members are json, regex, choice, grammar, json_object, structural_tag, "
          "whitespace_pattern and disable_any_whitespace");
    });
  }
  if (out.grammar && !had_grammar) return true;
  return reader.fail(
      "one of json, regex, choice, grammar, json_object and structural_tag is required");
}

// What vLLM's clients sent before structured_outputs.
bool read_guided_json(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  return set_schema(reader, element, out);
}
bool read_guided_regex(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  return set_text<Kind::regex>(reader, element, out);
}
bool read_guided_choice(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  return set_choice(reader, element, out);
}
bool read_guided_grammar(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  return set_text<Kind::grammar>(reader, element, out);
}
bool read_guided_whitespace(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  out.whitespace_place = reader.pointer();
  return read(reader, element, out.whitespace_pattern);
}

bool read_bad_words(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  if (!read(reader, element, out.bad_words)) return false;
  if (out.bad_words.size() > kMaxBadWords) {
    return reader.fail(fmt::format("at most {} words", kMaxBadWords));
  }
  for (const std::string& word : out.bad_words) {
    if (word.find_first_not_of(' ') == word.npos) return reader.fail("a word must not be empty");
  }
  return true;
}

namespace {

bool read_budget(JsonReader& reader, JsonElement element, GenerationRequest& out,
                 std::string_view name) {
  if (out.thinking_budget) {
    return reader.fail(fmt::format("contradicts {}", out.thinking_budget_name));
  }
  std::int64_t budget = 0;
  if (!read(reader, element, budget)) return false;
  if (budget < -1) return reader.fail("must be at least 0, or -1 (no limit)");
  if (budget < 0) return true;
  out.thinking_budget = budget;
  out.thinking_budget_name = name;
  return true;
}

}  // namespace

bool read_thinking_budget(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  return read_budget(reader, element, out, "thinking_budget");
}
bool read_thinking_token_budget(JsonReader& reader, JsonElement element, GenerationRequest& out) {
  return read_budget(reader, element, out, "thinking_token_budget");
}

bool check_structured(JsonReader& reader, const GenerationRequest& request) {
  if (!request.any_whitespace && request.whitespace_pattern) {
    return reader.in_members({"structured_outputs", "disable_any_whitespace"}, [&] {
      return reader.fail("contradicts " + request.whitespace_place.substr(1));
    });
  }
  if (request.any_whitespace && !request.whitespace_pattern) return true;
  const bool has_json = request.grammar && (request.grammar->kind == Kind::json_schema ||
                                            request.grammar->kind == Kind::structural_tag);
  if (has_json) return true;
  const std::string_view name = request.whitespace_place == "/guided_whitespace_pattern"
                                    ? "guided_whitespace_pattern"
                                    : "structured_outputs";
  return reader.in_member(
      name, [&] { return reader.fail("white space is ruled where the answer is JSON only"); });
}

}  // namespace quire::openapi
