#include "openapi/json_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace quire::openapi {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the UTF-8 character at the start of `text`; negative: this many bytes form the maximal
// part of a broken one (Unicode 15, table 3-7).
int character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return -1;
  const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xBF;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) >= text.size() || byte(i) < low || byte(i) > high) return -i;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

// What may be copied as it is: ASCII without quote, backslash and control characters.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> table{};
  for (int c = 0x20; c < 0x7F; ++c) table[c] = c != '"' && c != '\\';
  return table;
}();

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t start = 0, i = 0;
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (kPlain[c]) {
      ++i;
      continue;
    }
    const int length = character_length(text.substr(i));
    if (length > 1) {
      i += length;
      continue;
    }
    out.append(text, start, i - start);
    if (length == 1) {
      append_escaped(out, text[i]);
    } else {
      out += kReplacement;
    }
    i += std::abs(length);
    start = i;
  }
  out.append(text, start, i - start);
  out += '"';
}

void append_json_int(std::string& out, std::int64_t value) {
  std::array<char, 24> digits;
  const auto [end, error] = std::to_chars(digits.begin(), digits.end(), value);
  out.append(digits.begin(), end);
}

void JsonWriter::separate() {
  if (needs_comma_) out_ += ',';
  needs_comma_ = true;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  needs_comma_ = true;
  return *this;
}

// One append for the three parts of a name that is as short as ours are.
JsonWriter& JsonWriter::key(std::string_view name) {
  std::array<char, 64> text;
  if (name.size() + 4 > text.size()) return any_key(name);
  char* end = text.data();
  if (needs_comma_) *end++ = ',';
  *end++ = '"';
  end = std::copy(name.begin(), name.end(), end);
  *end++ = '"';
  *end++ = ':';
  out_.append(text.data(), end);
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::any_key(std::string_view name) {
  separate();
  append_json_string(out_, name);
  out_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  append_json_string(out_, text);
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  separate();
  append_json_int(out_, value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  separate();
  if (std::isnan(value)) value = 0;
  if (std::isinf(value)) value = std::copysign(std::numeric_limits<double>::max(), value);
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.begin(), digits.end(), value);
  const std::string_view text(digits.data(), end - digits.data());
  out_ += text;
  if (text.find_first_of(".e") == std::string_view::npos) out_ += ".0";
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::ids(std::span<const TokenId> values) {
  begin_array();
  for (const TokenId id : values) integer(id);
  return end_array();
}

}  // namespace quire::openapi
