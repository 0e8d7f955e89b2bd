#pragma once
// The values of "format".

#include <optional>
#include <string_view>

#include "engine/structured/regex/char_set.h"

namespace quire::structured {

// The texts of a format; empty: no such format is known.
std::optional<RegexId> format_regex(RegexStore& store, std::string_view format, Spelling spelling);

}  // namespace quire::structured
