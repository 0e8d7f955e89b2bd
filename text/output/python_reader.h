#pragma once
// Python's literals and keyword arguments, byte by byte, to JSON as it goes.

#include <cstdint>
#include <string>

namespace quire {

// One literal: strings with either quote, single or triple, Python's escapes; numbers; True, False,
// None; lists, tuples, dicts.
class PythonLiteral {
 public:
  enum class Status : std::uint8_t {
    more,
    done,          // with this byte
    ended_before,  // this byte is not part of it
    broken,        // by this byte
  };
  // Adds to `json` what is certain. After anything but `more` nothing may be pushed.
  Status push(char c, std::string& json);
  bool has_begun() const { return has_begun_; }
  std::size_t unwritten() const { return in_ == In::word ? word_.size() : 0; }

  // The literal as JSON, white space around it allowed; empty: it is none.
  static std::string to_json(std::string_view text);

 private:
  enum class Expect : std::uint8_t { value, value_or_end, key_or_end, colon, comma_or_end };
  enum class In : std::uint8_t { structure, word, opening, string, escape, digits, closing };

  Status structure(char c, std::string& json);
  Status begin_value(char c, std::string& json);
  Status end_value(Status outermost);
  Status end_word(char c, std::string& json);
  Status in_opening(char c, std::string& json);
  Status in_string(char c, std::string& json);
  Status in_closing(char c, std::string& json);
  Status end_string(Status outermost, std::string& json);
  bool in_escape(char c, std::string& json);
  bool in_digits(char c, std::string& json);
  void end_digits(std::string& json);

  static constexpr std::size_t kMaxDepth = 256;
  static constexpr std::size_t kMaxWord = 400;

  bool has_begun_ = false;
  std::string open_;   // brackets, as JSON has them
  std::string close_;  // what ends each of them in Python
  Expect expect_ = Expect::value;
  In in_ = In::structure;
  std::string word_;
  char quote_ = 0;
  bool raw_ = false;  // r'…'
  bool triple_ = false;
  int quotes_ = 0;  // at the beginning or, of a triple one, at the end
  bool needs_comma_ = false;
  std::uint32_t code_ = 0;  // of an escape with digits
  int digits_left_ = 0;
  bool octal_ = false;
};

// name=LITERAL, … up to and with the closing parenthesis.
class KeywordsReader {
 public:
  enum class Status : std::uint8_t { more, done, broken };
  // The arguments' JSON text begins with the first value.
  Status push(char c, std::string& json);
  // Of the bytes up to the last one that added JSON, those at the end that it does not say yet.
  std::size_t unwritten() const { return expect_ == Expect::value ? value_.unwritten() : 0; }

 private:
  enum class Expect : std::uint8_t { key_or_end, in_key, equals, value, comma_or_end };
  Status in_value(char c, std::string& json);

  Expect expect_ = Expect::key_or_end;
  std::string key_;
  bool has_any_ = false;
  PythonLiteral value_;
};

}  // namespace quire
