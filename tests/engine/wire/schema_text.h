#pragma once
// messages.proto, printed from the structs' own lists of fields.

#include <cstddef>
#include <string>
#include <vector>

namespace quire::test {

std::string schema_text();

// Of every message that crosses the line, those inside of others included: how many members its
// struct has, and how many of them are on the wire.
struct MessageCount {
  std::string name;
  std::size_t members = 0;
  std::size_t fields = 0;
};
std::vector<MessageCount> message_counts();

}  // namespace quire::test
