#pragma once
// What two of Mooncake's engines tell each other before bytes travel (P2PHANDSHAKE): a length, a
// kind and JSON, one question and one answer a connection. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

inline constexpr std::uint64_t kMaxSegmentBytes = 16 << 20;

enum class MooncakeHello : std::uint8_t { connection = 0, metadata = 1, notify = 2, probe = 3 };

// Memory that may be written to, and where.
struct MooncakeSegment {
  struct Memory {
    std::uint64_t address = 0, bytes = 0;
  };
  std::string name = {};
  std::uint16_t data_port = 0;
  bool has_status = true;  // writes are acknowledged
  std::vector<Memory> memory = {};

  bool covers(std::uint64_t address, std::uint64_t bytes) const;
};

// The frame, with its length.
std::string mooncake_hello(MooncakeHello kind, std::string_view json);
struct ParsedHello {
  MooncakeHello kind = MooncakeHello::metadata;
  std::string_view json;
};
Result<ParsedHello> parse_mooncake_hello(std::string_view body);  // behind the length

std::string segment_json(const MooncakeSegment& segment);
Result<MooncakeSegment> parse_segment(std::string_view json);

}  // namespace quire
