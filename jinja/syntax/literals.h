#pragma once
// Numbers and quoted texts as templates and Python write them.

#include <optional>
#include <string>
#include <string_view>

#include "jinja/values/value.h"

namespace quire::jinja {

struct NumberLiteral {
  Value value;
  std::size_t length;  // bytes read
};
// The number that `text` begins with. After a dot only whole numbers count: a.1.5 is a[1][5].
std::optional<NumberLiteral> read_number(std::string_view text, bool after_dot);

// What stands between quotes, escapes resolved; fails (syntax).
std::string unescape(std::string_view quoted, int line);

// int(text, base) and float(text) of Python; empty where it raises ValueError.
std::optional<Value> parse_integer(std::string_view text, int base);
std::optional<double> parse_real(std::string_view text);

}  // namespace quire::jinja
