#pragma once
// Unicode's general categories as sets of characters, for \p{…} in patterns.

#include <optional>
#include <string_view>

#include "engine/structured/regex/char_set.h"

namespace quire::structured {

// By short or long name, alone or after "gc=" or "General_Category=": "L", "Lu", "Letter",
// "Uppercase_Letter"; and "Any", "ASCII", "Assigned". Empty: no such category. Thread-safe.
std::optional<CharSet> chars_of_property(std::string_view name);

}  // namespace quire::structured
