#include "text/output/tool_types.h"

#include "base/error.h"
#include "jinja/values/dict.h"
#include "jinja/values/value.h"
#include "text/output/json_scanner.h"
#include "text/output/marker_matcher.h"
#include "text/output/python_reader.h"
#include "text/output/schema_parts.h"

namespace quire {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr int kMaxDepth = 16;  // of $ref and anyOf in each other

void add_type(JsonTypes& types, std::string_view name) {
  types.string |= name == "string";
  types.number |= name == "number" || name == "integer";
  types.boolean |= name == "boolean";
  types.null |= name == "null";
  types.object |= name == "object";
  types.array |= name == "array";
}

void add_type_of(JsonTypes& types, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::string:
      return add_type(types, "string");
    case Value::Kind::boolean:
      return add_type(types, "boolean");
    case Value::Kind::none:
      return add_type(types, "null");
    case Value::Kind::list:
      return add_type(types, "array");
    case Value::Kind::dict:
      return add_type(types, "object");
    default:
      return add_type(types, "number");
  }
}

void add_types(JsonTypes& types, const Value& schema, const Value& root, int depth) {
  if (depth > kMaxDepth || !schema.is(Value::Kind::dict)) return;
  if (const Value* type = schema_member(&schema, "type")) {
    if (type->is_string()) add_type(types, type->string());
    if (type->is(Value::Kind::list)) {
      for (const Value& one : type->list()) {
        if (one.is_string()) add_type(types, one.string());
      }
    }
    return;
  }
  if (const Value* reference = schema_member(&schema, "$ref"); reference && reference->is_string()) {
    if (const Value* target = resolve_reference(root, reference->string())) {
      add_types(types, *target, root, depth + 1);
    }
  }
  for (const std::string_view name : {"anyOf", "oneOf", "allOf"}) {
    const Value* list = schema_member(&schema, name);
    if (list == nullptr || !list->is(Value::Kind::list)) continue;
    for (const Value& one : list->list()) add_types(types, one, root, depth + 1);
  }
  if (const Value* values = schema_member(&schema, "enum"); values && values->is(Value::Kind::list)) {
    for (const Value& one : values->list()) add_type_of(types, one);
  }
  if (const Value* value = schema_member(&schema, "const")) add_type_of(types, *value);
  if (schema_member(&schema, "properties")) types.object = true;
  if (schema_member(&schema, "items")) types.array = true;
}

bool fits(std::string_view json, JsonTypes types) {
  const char c = json.empty() ? '\0' : json.front();
  if (c == '{') return types.object;
  if (c == '[') return types.array;
  if (c == '"') return types.string;
  if (c == 't' || c == 'f') return types.boolean;
  if (c == 'n') return types.null;
  return types.number;
}

}  // namespace

ToolTypes::ToolTypes(std::string_view tools) {
  Value list;
  try {
    list = jinja::parse_json(tools);
  } catch (const Failure&) {
    return;
  }
  if (!list.is(Value::Kind::list)) return;
  for (const Value& tool : list.list()) {
    const Value* function = schema_member(&tool, "function");
    const Value* name = schema_member(function, "name");
    const Value* parameters = schema_member(function, "parameters");
    const Value* properties = schema_member(parameters, "properties");
    if (name == nullptr || !name->is_string() || properties == nullptr ||
        !properties->is(Value::Kind::dict)) {
      continue;
    }
    auto& types = tools_[name->string()];
    for (const auto& [key, schema] : properties->dict()) {
      if (key.is_string()) add_types(types[key.string()], schema, *parameters, 0);
    }
  }
}

JsonTypes ToolTypes::of(const std::string& tool, const std::string& parameter) const {
  const auto types = tools_.find(tool);
  if (types == tools_.end()) return {};
  const auto type = types->second.find(parameter);
  return type == types->second.end() ? JsonTypes{} : type->second;
}

std::string typed_value(std::string_view text, JsonTypes types) {
  const std::string_view bare = without_space(text);
  if (!types.only_string()) {
    if (JsonScanner::accepts(bare) && fits(bare, types) && !bare.starts_with('"')) {
      return std::string(bare);
    }
    // Some models write True, None and lists as Python has them.
    std::string json = PythonLiteral::to_json(bare);
    if (!json.empty() && fits(json, types) && !json.starts_with('"')) return json;
  }
  std::string json;
  append_json_string(json, text);
  return json;
}

}  // namespace quire
