#pragma once
// Metadata as NIXL's library writes it, for tests.

#include <string>
#include <vector>

#include "engine/kv_nixl/agent_blob.h"

namespace quire::test {

inline std::string made_number(std::uint64_t value, std::size_t bytes = 8) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

inline std::string made_field(const std::string& tag, const std::string& value) {
  return tag + made_number(value.size()) + value + "|";
}

// A section for each range.
inline std::string made_blob(const std::string& name, const std::vector<AgentBlob::Range>& ranges) {
  std::string text = "nixlSerDes|" + made_field("Agent", name);
  text += made_field("Conns", made_number(1)) + made_field("t", "UCX");
  text += made_field("c", "an address") + made_field("", "MemSection");
  text += made_field("nixlSecElms", made_number(ranges.size()));
  for (const AgentBlob::Range& range : ranges) {
    text += made_field("bknd", "UCX") + made_field("nixlDList", "nixlSDList");
    text += made_field("t", made_number(static_cast<std::uint64_t>(range.memory), 4));
    text += made_field("n", made_number(1));
    text += made_field("", made_number(range.address) + made_number(range.bytes) +
                               made_number(range.device) + "a key");
  }
  return text;
}

}  // namespace quire::test
