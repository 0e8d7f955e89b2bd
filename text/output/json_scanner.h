#pragma once
// Follows one JSON value byte by byte, with constant work for each.

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

class JsonScanner {
 public:
  enum class Status : std::uint8_t {
    more,
    done,          // with this byte
    ended_before,  // a number or word at the outermost level; this byte is not part of it
    broken,        // by this byte
  };
  // White space before the value is part of it. After anything but `more` nothing may be pushed.
  Status push(char c);

  // Exactly one JSON value, with white space around it?
  static bool accepts(std::string_view text);

 private:
  enum class Expect : std::uint8_t { value, value_or_end, key, key_or_end, colon, comma_or_end };
  enum class Number : std::uint8_t { minus, zero, digits, dot, fraction, e, sign, exponent };

  bool in_string(char c);
  Status begin_value(char c);
  Status structure(char c);
  Status end_value();
  bool continues_number(char c);
  bool number_may_end() const;

  static constexpr std::size_t kMaxDepth = 256;

  std::string open_;  // brackets
  Expect expect_ = Expect::value;
  bool in_string_ = false;
  bool string_is_key_ = false;
  int escape_ = 0;  // hexadecimal digits still to come; -1 just after the backslash
  bool in_number_ = false;
  Number number_ = Number::minus;
  std::string_view word_;  // what is still to come of true, false or null
};

// Adds the byte as it stands in a JSON string.
void append_json_byte(std::string& out, char c);
void append_json_string(std::string& out, std::string_view text);

}  // namespace quire
