#pragma once
// Python's str() and repr().

#include <string>
#include <string_view>

#include "jinja/values/value.h"

namespace quire::jinja {

std::string to_text(const Value& value);  // str(): what {{ value }} prints
std::string repr(const Value& value);
std::string repr(double value);           // the shortest text that reads back the same
std::string repr(std::string_view text);  // quoted
// Appends; fails (limit) beyond 16 MiB and (recursion) where objects contain each other.
void append_text(std::string& out, const Value& value);
void append_repr(std::string& out, const Value& value, int depth = 0);

}  // namespace quire::jinja
