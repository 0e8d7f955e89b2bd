#pragma once
// Reads one JSON object character by character, as far as it goes, and finds a call's name and
// arguments in it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

class ToolCallScanner {
 public:
  enum class Status : std::uint8_t { incomplete, complete, broken };

  // After `complete` or `broken` nothing may be pushed. A character that breaks the object is not
  // part of text().
  Status push(char c);
  const std::string& text() const { return text_; }

  // The value of "name" once it is complete and a text that is not empty.
  std::optional<std::string> name() const;
  // The JSON text of "arguments" so far, where it is an object; empty before it begins.
  std::string_view arguments_so_far() const;
  // What the call's arguments are in the end: an object's text, a text that holds one, "{}" where
  // there are none.
  std::string arguments() const;

 private:
  enum class Expect : std::uint8_t {
    object,
    key_or_end,
    key,
    colon,
    value,
    value_or_end,
    comma_or_end
  };
  struct Member {
    std::size_t begin = 0;  // in text_; end is 0 while the value is being read
    std::size_t end = 0;
    bool seen = false;
    std::string_view in(std::string_view text) const {
      return text.substr(begin, (end == 0 ? text.size() : end) - begin);
    }
  };

  bool accept(char c);
  bool accept_in_text(char c);
  bool accept_structure(char c);
  bool begin_value(char c);
  bool begin_member();
  void begin_member_value();
  void end_value();
  bool close(char c);
  bool continues_word(char c) const;
  bool end_word();

  static constexpr std::size_t kMaxDepth = 100;

  std::string text_;
  std::string open_;  // brackets
  Expect expect_ = Expect::object;
  bool in_text_ = false;
  bool in_word_ = false;  // a number, true, false or null
  bool text_is_key_ = false;
  int escape_ = 0;  // characters of an escape still to come; -1 just after the backslash
  std::size_t token_begin_ = 0;
  Member name_;
  Member arguments_;
  Member* member_ = nullptr;  // whose value is being read, of the outermost object
};

}  // namespace quire
