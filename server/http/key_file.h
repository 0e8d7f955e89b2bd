#pragma once
// --api-key-file: keys by their SHA-256, each with a name and its own limits, so that the file gives
// no key away and logs can say who asked.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

struct NamedKey {
  std::string name;
  std::array<unsigned char, 32> sha256{};
  int max_concurrency = 0;               // requests under way; 0: no limit
  std::int64_t requests_per_minute = 0;  // 0: no limit
  std::int64_t tokens_per_minute = 0;    // of prompts and answers; 0: no limit
  bool may_set_priority = true;          // of the file: only where its line says so
};

// A key per line: NAME SHA256 [concurrency=N] [requests-per-minute=N] [tokens-per-minute=N]
// [priority]; # begins a comment. The error names the line.
Result<std::vector<NamedKey>> parse_key_file(std::string_view text);

}  // namespace quire
