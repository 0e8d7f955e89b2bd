#pragma once
// --api-key-file: keys by their SHA-256, each with a name and its own limits, so that the file gives
// no key away and logs can say who asked.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

struct NamedKey {
  std::string name;
  std::array<unsigned char, 32> sha256{};
  int max_concurrency = 0;  // requests under way; 0: no limit
};

// A key per line: NAME SHA256 [concurrency=N]; # begins a comment. The error names the line.
Result<std::vector<NamedKey>> parse_key_file(std::string_view text);

}  // namespace quire
