#pragma once
// Regular expressions as people write them (ECMAScript's, with what Python and Rust share), for whole
// texts and for the search that JSON Schema's "pattern" means.

#include <string_view>

#include "engine/structured/regex/char_set.h"

namespace quire::structured {

enum class PatternUse : std::uint8_t { whole, search };

// `.` is any character but LF; \d \w are ASCII's, \s is Unicode's white space. Throws GrammarFailure: syntax, or unsupported
// for look-around, back references, \b, \p and anchors that are not at an end.
RegexId parse_pattern(RegexStore& store, std::string_view pattern, PatternUse use,
                      Spelling spelling);

}  // namespace quire::structured
