#pragma once
// The alphabet of byte-level tokenizers: each byte is written as one printable character.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// byte → character; bytes that are printable in Latin-1 stand for themselves.
constexpr std::array<char16_t, 256> make_byte_chars() {
  std::array<char16_t, 256> chars{};
  char16_t next = 256;
  for (char16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    chars[byte] = printable ? byte : next++;
  }
  return chars;
}

constexpr std::array<std::int16_t, 512> make_char_bytes() {
  std::array<std::int16_t, 512> bytes{};
  for (auto& byte : bytes) byte = -1;
  const auto chars = make_byte_chars();
  for (std::int16_t byte = 0; byte < 256; ++byte) bytes[chars[byte]] = byte;
  return bytes;
}

inline constexpr auto kByteChars = make_byte_chars();
inline constexpr auto kCharBytes = make_char_bytes();  // -1: not in the alphabet

// Appends the bytes that `chars` stand for; false, with `out` as it was, if one stands for none.
bool append_bytes_of_chars(std::string& out, std::string_view chars);
void append_chars_of_bytes(std::string& out, std::string_view bytes);

}  // namespace quire
