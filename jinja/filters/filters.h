#pragma once
// What stands after a | in a template.

#include <string_view>

#include "jinja/syntax/ast.h"

namespace quire::jinja {

FilterFunction find_filter(std::string_view name);  // null where there is none
FilterFunction require_filter(const Value& name);   // fails (runtime) instead

}  // namespace quire::jinja
