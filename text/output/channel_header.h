#pragma once
// The header of one of harmony's messages, byte by byte:
//   [<|start|>assistant] [ to=RECIPIENT] <|channel|>CHANNEL [to=RECIPIENT] [<|constrain|>…]
//   <|message|>

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

class ChannelHeader {
 public:
  enum class Status : std::uint8_t { more, done, none };  // none: this is no header
  // The byte counts as read in all cases but the last, where it is the end of text().
  Status push(char c);

  enum class Kind : std::uint8_t { content, reasoning, call, broken_call };
  Kind kind() const;             // when done
  std::string function() const;  // of a call: after "functions."
  const std::string& text() const { return text_; }
  bool is_markup() const;  // what has been read cannot be an answer's text
  bool begun() const { return text_.size() > kMaxBytes; }  // as a header, and never ended

 private:
  bool may_begin() const;
  std::string_view recipient() const;

  static constexpr std::size_t kMaxBytes = 512;
  std::string text_;
};

}  // namespace quire
