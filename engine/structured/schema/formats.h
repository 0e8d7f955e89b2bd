#pragma once
// The values of "format": JSON Schema's, and what makers of schemas write beside them.

#include <optional>
#include <string_view>

#include "engine/structured/regex/char_set.h"

namespace quire::structured {

// A format of numbers, such as int32: decimal bounds, both none for any number.
struct NumberFormat {
  std::string_view minimum, maximum;
  bool whole = false;
};
std::optional<NumberFormat> number_format(std::string_view format);

bool is_text_format(std::string_view format);
// The texts of a format; empty: no such format is known.
std::optional<RegexId> format_regex(RegexStore& store, std::string_view format, Spelling spelling);

// Of times without an offset, which RFC 3339 does not have, generators write the pattern beside the
// format; it is what they check.
bool is_local_time(RegexStore& store, std::string_view format, RegexId format_regex,
                   RegexId pattern);

}  // namespace quire::structured
