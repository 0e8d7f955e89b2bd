#pragma once
// What a text is split by: a regular expression, a string or a class of characters. Immutable; any
// number of threads may search at once.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer/token_model.h"

namespace quire {

// A match or what lies between two.
struct Span {
  std::uint32_t begin, end;  // bytes; never both the same unless an expression matches nothing
  bool is_match;
};

class SplitPattern {
 public:
  virtual ~SplitPattern() = default;
  // Replaces `spans` by the matches in `text` and what lies between them, from left to right.
  virtual void find(std::string_view text, std::vector<Span>& spans) const = 0;
  // Appends the same as pieces, the empty ones left out, moved by `offset`.
  virtual void cut(std::string_view text, std::uint32_t offset, std::vector<Piece>& pieces) const;
};

using CharPredicate = bool (*)(char32_t);

std::unique_ptr<SplitPattern> make_char_pattern(CharPredicate predicate);
// `text` is not empty.
std::unique_ptr<SplitPattern> make_literal_pattern(std::string_view text);
// An expression as Oniguruma reads it. One that a scanner was written for gets it. Throws
// Failure saying what is wrong with the expression.
std::unique_ptr<SplitPattern> make_regex_pattern(std::string_view expression);
// The same without scanners.
std::unique_ptr<SplitPattern> make_pcre_pattern(std::string_view expression);
// The scanner for exactly this expression, or null.
std::unique_ptr<SplitPattern> find_scanner(std::string_view expression);

extern const std::string_view kByteLevelExpression;  // GPT-2's, which ByteLevel splits by

}  // namespace quire
