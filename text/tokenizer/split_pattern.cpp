#include "text/tokenizer/split_pattern.h"

#include <string>

#include "base/utf8.h"

namespace quire {
namespace {

std::uint32_t offset(std::size_t at) { return static_cast<std::uint32_t>(at); }

class CharPattern final : public SplitPattern {
 public:
  explicit CharPattern(CharPredicate predicate) : predicate_(predicate) {}

  void find(std::string_view text, std::vector<Span>& spans) const override {
    spans.clear();
    std::uint32_t previous = 0;
    for_each_char(text, [&](char32_t c, std::string_view bytes) {
      if (!predicate_(c)) return;
      const auto begin = offset(static_cast<std::size_t>(bytes.data() - text.data()));
      const auto end = offset(begin + bytes.size());
      if (previous < begin) spans.push_back({previous, begin, false});
      spans.push_back({begin, end, true});
      previous = end;
    });
    if (previous < text.size()) spans.push_back({previous, offset(text.size()), false});
  }

 private:
  CharPredicate predicate_;
};

class LiteralPattern final : public SplitPattern {
 public:
  explicit LiteralPattern(std::string_view literal) : literal_(literal) {}

  void find(std::string_view text, std::vector<Span>& spans) const override {
    spans.clear();
    std::size_t previous = 0;
    for (std::size_t at; (at = text.find(literal_, previous)) != text.npos;) {
      if (previous < at) spans.push_back({offset(previous), offset(at), false});
      previous = at + literal_.size();
      spans.push_back({offset(at), offset(previous), true});
    }
    if (previous < text.size()) spans.push_back({offset(previous), offset(text.size()), false});
  }

 private:
  std::string literal_;
};

}  // namespace

const std::string_view kByteLevelExpression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void SplitPattern::cut(std::string_view text, std::uint32_t offset,
                       std::vector<Piece>& pieces) const {
  std::vector<Span> spans;
  find(text, spans);
  for (const Span& span : spans) {
    if (span.begin < span.end) pieces.push_back({offset + span.begin, offset + span.end});
  }
}

std::unique_ptr<SplitPattern> make_char_pattern(CharPredicate predicate) {
  return std::make_unique<CharPattern>(predicate);
}

std::unique_ptr<SplitPattern> make_literal_pattern(std::string_view text) {
  return std::make_unique<LiteralPattern>(text);
}

std::unique_ptr<SplitPattern> make_regex_pattern(std::string_view expression) {
  if (auto scanner = find_scanner(expression)) return scanner;
  return make_pcre_pattern(expression);
}

}  // namespace quire
