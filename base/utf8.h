#pragma once
// UTF-8, one character at a time.

#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the front of some bytes.
struct Utf8Step {
  enum Kind : unsigned char {
    valid,       // one character
    invalid,     // a maximal part that can never be one: counts as one U+FFFD
    incomplete,  // the bytes end inside of a character
  };
  Kind kind;
  unsigned char length;
};

// `begin` < `end`. Table 3-7 of the Unicode standard.
inline Utf8Step utf8_step(const char* begin, const char* end) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(begin[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8Step::valid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Step::invalid, 1};
  const unsigned char length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (unsigned char i = 1; i < length; ++i) {
    if (begin + i == end) return {Utf8Step::incomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Step::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::valid, length};
}

// Bytes of the character that starts with `lead`, in valid UTF-8.
inline std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character at `at`, which must stand in valid UTF-8; moves `at` behind it.
inline char32_t utf8_next(const char*& at) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(at[i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t c = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    at += 2;
    return c;
  }
  if (lead < 0xF0) {
    const char32_t c = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    at += 3;
    return c;
  }
  const char32_t c =
      (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  at += 4;
  return c;
}

// The character that ends before `at`; moves `at` to its start.
inline char32_t utf8_previous(const char*& at) {
  do --at;
  while ((static_cast<unsigned char>(*at) & 0xC0) == 0x80);
  const char* start = at;
  return utf8_next(start);
}

inline void utf8_append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    const char bytes[] = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    out.append(bytes, 2);
  } else if (c < 0x10000) {
    const char bytes[] = {static_cast<char>(0xE0 | c >> 12),
                          static_cast<char>(0x80 | (c >> 6 & 0x3F)),
                          static_cast<char>(0x80 | (c & 0x3F))};
    out.append(bytes, 3);
  } else {
    const char bytes[] = {
        static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
        static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
    out.append(bytes, 4);
  }
}

inline std::size_t utf8_count(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

// Calls f(char32_t, std::string_view its_bytes) for each character of valid UTF-8.
template <class F>
void for_each_char(std::string_view text, F&& f) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const char* const start = at;
    const char32_t c = utf8_next(at);
    f(c, std::string_view(start, static_cast<std::size_t>(at - start)));
  }
}

}  // namespace quire
