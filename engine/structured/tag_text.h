#pragma once
// The free text of structural tags and the marks that end it. A mark that holds special tokens is
// also met as those tokens.

#include <span>
#include <string>
#include <vector>

#include "engine/structured/grammar/rules.h"
#include "engine/structured/regex/byte_set.h"

namespace quire::structured {

class TagText {
 public:
  enum class Over : std::uint8_t {
    characters,  // UTF-8, no special token
    bytes,       // any bytes, no special token
    tokens,      // any token
  };

  TagText(RegexStore& store, std::span<const std::string> special_texts);

  RegexId any(Over over) const { return any_[static_cast<std::size_t>(over)]; }
  RegexId mark(std::string_view text) const;
  RegexId any_mark(const std::vector<std::string>& texts) const;
  // Text in which none of them occurs.
  RegexId without(Over over, const std::vector<std::string>& marks) const;
  // Text that begins with none of them.
  RegexId not_beginning(Over over, const std::vector<std::string>& texts) const;
  // Text up to and with `end`, none of `marks` before it.
  RegexId until(Over over, const std::string& end, const std::vector<std::string>& marks) const;
  // Length of the special token that `text` begins with; 0: of none.
  std::size_t special_at(std::string_view text) const;

 private:
  RegexStore& store_;
  std::span<const std::string> special_texts_;
  ByteSet special_first_;  // bytes that these begin with
  RegexId everything_;
  RegexId any_[3];
};

}  // namespace quire::structured
