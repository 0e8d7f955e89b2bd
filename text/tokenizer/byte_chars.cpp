#include "text/tokenizer/byte_chars.h"

#include "base/utf8.h"

namespace quire {

bool append_bytes_of_chars(std::string& out, std::string_view chars) {
  const std::size_t before = out.size();
  const char* at = chars.data();
  const char* const end = at + chars.size();
  while (at < end) {
    const char32_t c = utf8_next(at);
    if (c >= kCharBytes.size() || kCharBytes[c] < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(kCharBytes[c]);
  }
  return true;
}

void append_chars_of_bytes(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) utf8_append(out, kByteChars[static_cast<unsigned char>(byte)]);
}

}  // namespace quire
