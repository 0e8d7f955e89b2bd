#pragma once
// Regular expressions as people write them (ECMAScript's, with what Python and Rust share), for
// whole texts and for the search that JSON Schema's "pattern" means.

#include <string_view>

#include "engine/structured/regex/char_set.h"

namespace quire::structured {

enum class PatternUse : std::uint8_t { whole, search };

// `.` is any character but LF; \d \w are ASCII's, \s is Unicode's white space; of \p there are
// general categories. Anchors match nothing where text must precede or follow them. In a search
// that begins with ^ look-ahead is read, which generators of schemas write. Throws GrammarFailure:
// syntax, or unsupported for other look-around, back references, \b and anchors within a group in
// the middle.
RegexId parse_pattern(RegexStore& store, std::string_view pattern, PatternUse use,
                      Spelling spelling);

}  // namespace quire::structured
