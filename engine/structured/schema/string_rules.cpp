// Strings: lengths, patterns, formats, and what must not be.

#include <optional>

#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/formats.h"
#include "engine/structured/schema/schema_fields.h"
#include "engine/structured/schema/value_rules.h"

namespace quire::structured {
namespace {

constexpr const char* kBase64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";

}  // namespace

// Everything but lengths.
void ValueRules::string_constraints(const Schema& schema, std::vector<RegexId>& parts) {
  std::optional<RegexId> beside;
  if (schema.pattern) {
    beside = pattern(*schema.pattern, schema.pointer + "/pattern");
    parts.push_back(*beside);
  }
  if (schema.format) {
    const auto known = format_regex(store_, *schema.format, Spelling::json);
    if (!known) {
      schema_unsupported(schema.pointer, "format", "\"" + *schema.format + "\" is not known");
    }
    if (!beside || !is_local_time(store_, *schema.format, *known, *beside)) parts.push_back(*known);
  }
  if (schema.content_encoding) {
    if (*schema.content_encoding != "base64") {
      schema_unsupported(schema.pointer, "contentEncoding", "is supported for base64 only");
    }
    parts.push_back(parse_pattern(store_, kBase64, PatternUse::whole, Spelling::json));
  }
}

RegexId ValueRules::string_content(const Disjunct& what) {
  std::vector<RegexId> parts;
  std::uint32_t min = 0, max = kUnbounded;
  for (const SchemaId id : what.schemas) {
    const Schema& schema = document_.at(id);
    min = std::max(min, schema.min_length.value_or(0));
    max = std::min(max, schema.max_length.value_or(kUnbounded));
    string_constraints(schema, parts);
  }
  for (const auto& [id, keyword] : what.not_keywords) {
    const Schema& schema = document_.at(id);
    if (keyword == "minLength") {
      max = std::min(max, *schema.min_length - 1);
    } else if (keyword == "maxLength") {
      min = std::max(min, *schema.max_length + 1);
    } else {
      Schema only;
      only.pointer = schema.pointer;
      if (keyword == "pattern") only.pattern = schema.pattern;
      if (keyword == "format") only.format = schema.format;
      if (keyword == "contentEncoding") only.content_encoding = schema.content_encoding;
      std::vector<RegexId> negated;
      string_constraints(only, negated);
      for (const RegexId part : negated) parts.push_back(store_.complement(part));
    }
  }
  for (const json::value& value : what.not_values) {
    if (value.is_string()) {
      parts.push_back(store_.complement(json_spellings(store_, value.get_string())));
    }
  }
  if (max < min) return kNothing;
  if (min > 0 || max != kUnbounded || parts.empty() || !what.not_values.empty() ||
      !what.not_keywords.empty()) {
    parts.push_back(length(min, max));
  }
  const RegexId all = store_.all_of(std::move(parts));
  return store_.alive(all) ? all : kNothing;
}

ExprId ValueRules::string(const Disjunct& what) {
  refuse_undecided(what, kString);
  bool plain = what.not_values.empty() && what.not_keywords.empty();
  std::uint32_t min = 0, max = kUnbounded;
  for (const SchemaId id : what.schemas) {
    const Schema& schema = document_.at(id);
    plain = plain && !schema.pattern && !schema.format && !schema.content_encoding;
    min = std::max(min, schema.min_length.value_or(0));
    max = std::min(max, schema.max_length.value_or(kUnbounded));
  }
  if (plain) return max < min ? rules_.nothing() : rules_.solid(style_.any_string(min, max));
  const RegexId content = string_content(what);
  return content == kNothing ? rules_.nothing() : rules_.solid(style_.quoted(content));
}

}  // namespace quire::structured
