#include "text/output/callable.h"

#include <algorithm>
#include <string_view>

#include "jinja/values/dict.h"

namespace quire {
namespace {

using jinja::Value;

constexpr int kMaxDepth = 16;  // of $ref and anyOf in each other

const Value* member(const Value* of, std::string_view name) {
  return of != nullptr && of->is(Value::Kind::dict) ? of->dict().find(name) : nullptr;
}

// "#/$defs/NAME" and longer ways of the same kind.
const Value* resolve(const Value& root, std::string_view reference) {
  if (!reference.starts_with("#/")) return nullptr;
  const Value* at = &root;
  reference.remove_prefix(2);
  while (at != nullptr && !reference.empty()) {
    const std::size_t slash = std::min(reference.find('/'), reference.size());
    at = member(at, reference.substr(0, slash));
    reference.remove_prefix(std::min(slash + 1, reference.size()));
  }
  return at;
}

bool may_be_object(const Value& schema, const Value& root, int depth) {
  if (schema.is(Value::Kind::boolean)) return schema.boolean();
  if (depth > kMaxDepth || !schema.is(Value::Kind::dict)) return true;
  const auto is_object = [](const Value& name) {
    return name.is_string() && name.string() == "object";
  };
  const auto part = [&](const Value& one) { return may_be_object(one, root, depth + 1); };
  if (const Value* type = member(&schema, "type")) {
    if (type->is_string() && !is_object(*type)) return false;
    if (type->is(Value::Kind::list) && std::ranges::none_of(type->list(), is_object)) return false;
  }
  if (const Value* value = member(&schema, "const"); value && !value->is(Value::Kind::dict)) {
    return false;
  }
  if (const Value* values = member(&schema, "enum"); values && values->is(Value::Kind::list)) {
    const auto is_dict = [](const Value& one) { return one.is(Value::Kind::dict); };
    if (std::ranges::none_of(values->list(), is_dict)) return false;
  }
  if (const Value* reference = member(&schema, "$ref"); reference && reference->is_string()) {
    const Value* target = resolve(root, reference->string());
    if (target != nullptr && !part(*target)) return false;
  }
  for (const std::string_view name : {"allOf", "anyOf", "oneOf"}) {
    const Value* list = member(&schema, name);
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
