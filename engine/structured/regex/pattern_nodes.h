#pragma once
// What the pattern parser makes and parse_pattern() lowers.

#include <string>
#include <string_view>
#include <vector>

#include "engine/structured/regex/char_set.h"

namespace quire::structured {

struct PatternNode {
  enum class Kind : std::uint8_t { chars, sequence, choice, repeat, start, end, ahead };
  Kind kind = Kind::sequence;
  CharSet chars;
  std::vector<PatternNode> parts;  // of a repeat and of what is looked for ahead: one
  std::uint32_t min = 0, max = 0;
  bool anchored = false;  // has start or end inside
  bool looks = false;     // has ahead inside
  bool negative = false;  // of ahead
};

class PatternParser {
 public:
  // looks: look-ahead is read where the pattern begins with ^.
  PatternParser(std::string_view text, bool looks)
      : text_(text), looks_(looks && text.starts_with("^")) {}
  PatternNode parse();

 private:
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void unsupported(const std::string& what) const;
  bool done() const { return at_ >= text_.size(); }
  bool take(std::string_view word);
  char peek() const { return done() ? '\0' : text_[at_]; }

  PatternNode choice(int depth);
  PatternNode sequence(int depth);
  PatternNode atom(int depth);
  PatternNode group(int depth);
  PatternNode ahead(bool negative, int depth);
  PatternNode escape();
  PatternNode quantified(PatternNode inner);
  bool peek_number(std::size_t at) const;
  bool read_bounds(std::uint32_t& min, std::uint32_t& max);
  PatternNode char_class();
  // One member of a class; true when it is a single character, which then is `c`.
  bool class_member(CharSet& set, char32_t& c);
  bool class_escape(CharSet& set);
  CharSet property();
  char32_t char_escape();
  char32_t hex(int digits);
  bool read_flags();
  PatternNode chars(CharSet set) const;

  std::string_view text_;
  bool looks_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
  bool dot_all_ = false;
  int properties_ = 0;  // of Unicode, that were read
};

}  // namespace quire::structured
