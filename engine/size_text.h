#pragma once
// Numbers as people write them on a command line: 1k = 1000, 1K = 1024, 25.6k, 80GiB, 80GB.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

// Lower-case suffixes k, m, g, t are powers of 1000 and take a decimal point; upper-case ones
// powers of 1024, whole numbers only. Not negative.
Result<std::int64_t> parse_count(std::string_view text);

// The same, and KB … TB, KiB … TiB and B.
Result<std::int64_t> parse_bytes(std::string_view text);

// Refuses a bare number: nobody has 80 bytes of memory.
Result<std::int64_t> parse_bytes_with_unit(std::string_view text);

// A token count, or "auto" or -1: kAutoFit.
Result<std::int64_t> parse_max_model_len(std::string_view text);

// "12.5 GiB", "704 KiB".
std::string bytes_text(std::int64_t bytes);

}  // namespace quire
