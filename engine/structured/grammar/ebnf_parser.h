#pragma once
// The text of a grammar as a tree, before rules know each other.

#include <string>
#include <string_view>
#include <vector>

#include "engine/structured/regex/char_set.h"

namespace quire::structured {

struct EbnfNode {
  enum class Kind : std::uint8_t { text, chars, regex, name, sequence, choice, repeat };
  Kind kind = Kind::sequence;
  std::string text;  // of a literal or regular expression, or a rule's name
  CharSet chars;
  std::vector<EbnfNode> parts;
  std::uint32_t min = 0, max = 0;
  int line = 0;
};

struct EbnfRule {
  std::string name;
  EbnfNode body;
  int line = 0;
};

class EbnfParser {
 public:
  explicit EbnfParser(std::string_view text) : text_(text) {}
  std::vector<EbnfRule> parse();

 private:
  [[noreturn]] void fail(const std::string& what,
                         GrammarErrorKind kind = GrammarErrorKind::syntax) const;
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  bool take(std::string_view word);
  void skip_space();
  std::string name();
  bool at_rule();  // "name ::=" comes next
  EbnfNode choice(int depth);
  EbnfNode sequence(int depth);
  EbnfNode atom(int depth);
  EbnfNode quantified(EbnfNode inner);
  std::uint32_t number();
  EbnfNode literal();
  EbnfNode char_class();
  char32_t character();
  char32_t hex(int digits);

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace quire::structured
