#pragma once
// Python's comparisons, truth and hashes. Walking nested values costs their extent's weight, which
// callers charge.

#include <cstddef>
#include <string>
#include <string_view>

#include "jinja/values/value.h"

namespace quire::jinja {

std::string_view type_name(const Value& value);  // Python's: "str", "dict", "NoneType"
bool truthy(const Value& value);
bool equal(const Value& a, const Value& b);
std::size_t hash(
    const Value& value);  // equal values have equal hashes; fails (type) for lists and dicts

enum class Order : std::uint8_t { less, less_equal, greater, greater_equal };
bool ordered(Order order, const Value& a,
             const Value& b);  // fails (type) where Python has no order

bool is_number(const Value& value);  // booleans too

// Fails as any use of an undefined value does.
[[noreturn]] void fail_undefined(const Value& undefined);

}  // namespace quire::jinja
