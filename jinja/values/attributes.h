#pragma once
// value.name and value[key], as jinja2's immutable sandbox lets templates see them.

#include <string_view>

#include "jinja/values/object.h"
#include "jinja/values/value.h"

namespace quire::jinja {

// Prefers the attribute to the item; undefined where there is neither.
Value get_attribute(Evaluation& evaluation, const Value& object, const Value& name);
// Prefers the item to the attribute.
Value get_item(Evaluation& evaluation, const Value& object, const Value& key);
bool has_attribute(const Value& object, std::string_view name);

Value call_value(Evaluation& evaluation, const Value& callee, Arguments arguments);
bool is_callable(const Value& value);

using Method = Value (*)(Evaluation&, const Value& self, Arguments& arguments);
// A method of a built-in type that templates may call; null where there is none.
Method find_method(const Value& self, std::string_view name);

}  // namespace quire::jinja
