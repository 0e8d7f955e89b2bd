#pragma once
// Python's format specification mini-language:
// [[fill]align][sign][z][#][0][width][grouping][.precision][type].

#include <cstdint>
#include <string>
#include <string_view>

#include "jinja/values/value.h"

namespace quire::jinja {

class Evaluation;

struct FormatSpec {
  char32_t fill = ' ';
  char align = 0;  // < > = ^ or 0 for the type's own
  char sign = '-';
  bool alternate = false;
  std::int64_t width = 0;
  char grouping = 0;  // , or _
  std::int64_t precision = -1;
  char type = 0;
};

FormatSpec parse_format_spec(std::string_view text);  // fails (value)

// format(value, spec).
std::string format_value(Evaluation& evaluation, const Value& value, const FormatSpec& spec);

// A number's digits in the style of one of e E f F g G (or 'r' for repr), without padding or sign
// of zero width.
std::string format_real(double value, char type, std::int64_t precision, bool alternate);
std::string format_integer(const Value& integer, int base, bool upper);  // with '-' where negative
std::string pad_text(Evaluation& evaluation, std::string text, const FormatSpec& spec,
                     char default_align);

}  // namespace quire::jinja
