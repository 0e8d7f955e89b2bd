#pragma once
// What a JSON schema holds, for those who read one without understanding all of it.

#include <string_view>

#include "jinja/values/value.h"

namespace quire {

// Null where `of` is null or no object, or has no such member.
const jinja::Value* schema_member(const jinja::Value* of, std::string_view name);

// What a $ref such as "#/$defs/NAME" points to within the root; null where it points elsewhere.
const jinja::Value* resolve_reference(const jinja::Value& root, std::string_view reference);

}  // namespace quire
