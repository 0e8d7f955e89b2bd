#include "text/output/callable.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "jinja/values/dict.h"
#include "text/output/schema_parts.h"

namespace quire {
namespace {

using jinja::Value;

constexpr int kMaxDepth = 16;  // of $ref and anyOf in each other
constexpr std::string_view kOtherTypes[] = {"null", "boolean", "integer", "number", "string", "array"};

bool may_be_object(const Value& schema, const Value& root, int depth) {
  if (schema.is(Value::Kind::boolean)) return schema.boolean();
  if (depth > kMaxDepth || !schema.is(Value::Kind::dict)) return true;
  // Names that are no types are found by the grammar, which says what they are.
  const auto is_object = [](const Value& name) {
    if (!name.is_string()) return true;
    return name.string() == "object" ||
           std::ranges::find(kOtherTypes, name.string()) == std::end(kOtherTypes);
  };
  const auto part = [&](const Value& one) { return may_be_object(one, root, depth + 1); };
  if (const Value* type = schema_member(&schema, "type")) {
    if (!type->is(Value::Kind::list) && !is_object(*type)) return false;
    if (type->is(Value::Kind::list) && !type->list().empty() &&
        std::ranges::none_of(type->list(), is_object)) {
      return false;
    }
  }
  if (const Value* value = schema_member(&schema, "const"); value && !value->is(Value::Kind::dict)) {
    return false;
  }
  if (const Value* values = schema_member(&schema, "enum"); values && values->is(Value::Kind::list)) {
    const auto is_dict = [](const Value& one) { return one.is(Value::Kind::dict); };
    if (std::ranges::none_of(values->list(), is_dict)) return false;
  }
  if (const Value* reference = schema_member(&schema, "$ref"); reference && reference->is_string()) {
    const Value* target = resolve_reference(root, reference->string());
    if (target != nullptr && !part(*target)) return false;
  }
  for (const std::string_view name : {"allOf", "anyOf", "oneOf"}) {
    const Value* list = schema_member(&schema, name);
    if (list == nullptr || !list->is(Value::Kind::list) || list->list().empty()) continue;
    const bool may = name == "allOf" ? std::ranges::all_of(list->list(), part)
                                     : std::ranges::any_of(list->list(), part);
    if (!may) return false;
  }
  return true;
}

}  // namespace

bool admits_object(const Value& schema) { return may_be_object(schema, schema, 0); }

}  // namespace quire
