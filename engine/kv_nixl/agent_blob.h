#pragma once
// What a NIXL agent says of itself to others, as its library writes it: a name, an address per
// backend, and the memory that others may read. Checked here before the library sees it, which
// trusts every length in it. Little-endian; each field is a tag, 8 bytes of length, the bytes and
// '|'. Since NIXL 0.3.0.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

enum class NixlMemory : std::int32_t { dram = 0, vram = 1 };

struct AgentBlob {
  struct Range {
    std::int32_t memory = 0;  // a NixlMemory, or another kind of it
    std::uint64_t address = 0, bytes = 0, device = 0;
  };
  std::string name;
  std::vector<Range> ranges;

  // Whether one range has all of these bytes.
  bool covers(std::int32_t memory, std::uint64_t address, std::uint64_t bytes) const;
};

inline constexpr std::size_t kMaxAgentBlobBytes = 8 << 20;

Result<AgentBlob> parse_agent_blob(std::string_view bytes);

}  // namespace quire
