#pragma once
// Markup: texts that are marked as safe HTML, which escape what is added to them.

#include <string>
#include <string_view>

#include "jinja/values/value.h"

namespace quire::jinja {

std::string escape_html(std::string_view text);
Value escape(const Value& value);  // a safe text; str() of the value, escaped unless it was safe
Value forced_escape(const Value& value);  // escapes safe texts once more
std::string strip_tags(
    std::string_view html);  // without tags and comments, white space collapsed, entities resolved
inline bool is_safe(const Value& value) { return value.is_string() && value.text().safe; }

}  // namespace quire::jinja
