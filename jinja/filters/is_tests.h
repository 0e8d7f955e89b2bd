#pragma once
// What stands after `is` in a template.

#include <string_view>

#include "jinja/syntax/ast.h"

namespace quire::jinja {

TestFunction find_test(std::string_view name);  // null where there is none
TestFunction require_test(const Value& name);   // fails (runtime) instead

}  // namespace quire::jinja
