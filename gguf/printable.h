#pragma once
// Texts of a file as messages may quote them: it may have been made to play tricks on a terminal.

#include <string>
#include <string_view>

namespace quire::gguf {

// Its beginning in quotes; what is not printable ASCII is '?'.
inline std::string printable(std::string_view text) {
  std::string out(text.substr(0, 100));
  for (char& c : out) c = c < 0x20 || c > 0x7e ? '?' : c;
  return "\"" + out + "\"";
}

}  // namespace quire::gguf
