#pragma once
// The formats that structural tags are made of (engine/structured/structural_tag.h). Only the
// constraints' own files include it.

#include <string>
#include <string_view>
#include <utility>

#include "jinja/values/dict.h"
#include "jinja/values/value.h"

namespace quire::constraint {

using jinja::Dict;
using jinja::List;
using jinja::Value;

inline Value member(const Value& of, std::string_view name) {
  const Value* found = of.is(Value::Kind::dict) ? of.dict().find(name) : nullptr;
  return found == nullptr ? Value() : *found;
}

inline Value node(const char* type,
                  std::initializer_list<std::pair<const char*, Value>> members = {}) {
  Dict dict;
  dict.set("type", Value(type));
  for (const auto& [name, value] : members) dict.set(name, value);
  return Value(std::move(dict));
}

inline Value text(std::string value) {
  return node("const_string", {{"value", Value(std::move(value))}});
}
// An error in the schema names its place in the request.
inline Value schema_node(const Value& schema, const std::string& place) {
  return node("json_schema", {{"json_schema", schema}, {"place", Value(place)}});
}
// Of the values that fit, the objects: arguments are nothing else.
inline Value arguments_node(const Value& schema, const std::string& place) {
  return node("json_schema", {{"json_schema", schema}, {"place", Value(place)}, {"only_objects", Value(true)}});
}
inline Value any_object() {
  Dict schema;
  schema.set("type", Value("object"));
  return node("json_schema", {{"json_schema", Value(std::move(schema))}});
}
inline Value any_json() {
  return node("json_schema", {{"json_schema", Value(Dict())}});
}
inline Value regex(const char* pattern) { return node("regex", {{"pattern", Value(pattern)}}); }
// What parsers drop around marks.
inline Value space() { return regex("[ \\t\\r\\n]{0,8}"); }
inline Value sequence(List parts) {
  if (parts.size() == 1) return parts.front();
  return node("sequence", {{"elements", Value(std::move(parts))}});
}
inline Value either(List parts) {
  if (parts.size() == 1) return parts.front();
  return node("or", {{"elements", Value(std::move(parts))}});
}
inline Value tag(std::string begin, const Value& content, std::string end) {
  return node(
      "tag",
      {{"begin", Value(std::move(begin))}, {"content", content}, {"end", Value(std::move(end))}});
}
// `over`: characters, bytes or tokens.
inline Value any_text(const char* over = "characters") {
  return node("any_text", {{"text", Value(over)}});
}
inline Value separated(List tags, const std::string& separator, bool at_least_one = true) {
  return node("tags_with_separator", {{"tags", Value(std::move(tags))},
                                      {"separator", Value(separator)},
                                      {"at_least_one", Value(at_least_one)}});
}

}  // namespace quire::constraint
