#include <fmt/format.h>

#include "engine/structured/regex/pattern_nodes.h"

namespace quire::structured {
namespace {

constexpr int kMaxDepth = 200;
constexpr std::uint32_t kMaxRepeat = 1'000'000;
constexpr std::uint32_t kMaxLooks = 64;  // repetitions of a part that looks ahead

PatternNode joined(PatternNode::Kind kind, std::vector<PatternNode> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  PatternNode node;
  node.kind = kind;
  for (const PatternNode& part : parts) {
    node.anchored |= part.anchored;
    node.looks |= part.looks;
  }
  node.parts = std::move(parts);
  return node;
}

PatternNode anchor(PatternNode::Kind kind) {
  PatternNode node;
  node.kind = kind;
  node.anchored = true;
  return node;
}

}  // namespace

void PatternParser::fail(const std::string& what) const {
  throw GrammarFailure(GrammarErrorKind::syntax,
                       fmt::format("regular expression: {} at byte {}", what, at_));
}

void PatternParser::unsupported(const std::string& what) const {
  throw GrammarFailure(GrammarErrorKind::unsupported,
                       fmt::format("regular expression: {} at byte {}", what, at_));
}

bool PatternParser::take(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

PatternNode PatternParser::chars(CharSet set) const {
  if (ignore_case_) set.fold_ascii_case();
  PatternNode node;
  node.kind = PatternNode::Kind::chars;
  node.chars = std::move(set);
  return node;
}

PatternNode PatternParser::parse() {
  PatternNode node = choice(0);
  if (!done()) fail("a ) that nothing opens");
  return node;
}

PatternNode PatternParser::choice(int depth) {
  if (depth > kMaxDepth) {
    throw GrammarFailure(GrammarErrorKind::limit, "regular expression: groups nested too deeply");
  }
  std::vector<PatternNode> parts;
  do {
    parts.push_back(sequence(depth));
  } while (take("|"));
  return joined(PatternNode::Kind::choice, std::move(parts));
}

PatternNode PatternParser::sequence(int depth) {
  std::vector<PatternNode> parts;
  while (!done() && peek() != '|' && peek() != ')') {
    if (read_flags()) continue;
    parts.push_back(quantified(atom(depth)));
  }
  return joined(PatternNode::Kind::sequence, std::move(parts));
}

// (?i) and (?s), which hold from here on.
bool PatternParser::read_flags() {
  if (text_.substr(at_, 2) != "(?") return false;
  const std::size_t close = text_.find_first_not_of("is", at_ + 2);
  if (close == std::string_view::npos || close == at_ + 2 || text_[close] != ')') return false;
  const std::string_view flags = text_.substr(at_ + 2, close - at_ - 2);
  ignore_case_ |= flags.find('i') != std::string_view::npos;
  dot_all_ |= flags.find('s') != std::string_view::npos;
  at_ = close + 1;
  return true;
}

// Digits and a }.
bool PatternParser::peek_number(std::size_t at) const {
  const std::size_t end = text_.find_first_not_of("0123456789", at);
  return end != std::string_view::npos && end > at && text_[end] == '}';
}

PatternNode PatternParser::atom(int depth) {
  if (take("(")) return group(depth);
  if (take("[")) return char_class();
  if (take("\\")) return escape();
  if (take("^")) return anchor(PatternNode::Kind::start);
  if (take("$")) return anchor(PatternNode::Kind::end);
  if (take(".")) {
    return chars(dot_all_ ? CharSet::all() : CharSet::of('\n', '\n').complement());
  }
  if (peek() == '*' || peek() == '+' || peek() == '?') fail("nothing to repeat");
  std::uint32_t min = 0, max = 0;
  const std::size_t here = at_;
  if (peek() == '{' && read_bounds(min, max)) {
    at_ = here;
    fail("nothing to repeat");
  }
  at_ = here;
  if (text_.substr(at_, 2) == "{," && peek_number(at_ + 2)) {
    unsupported("{,n} is a repetition to some and text to others: write {0,n}; this");
  }
  const char32_t c = next_char(text_, at_);
  return chars(CharSet::of(c, c));
}

// What it looks for may have anchors of its own, which are of no concern to what is around it.
PatternNode PatternParser::ahead(bool negative, int depth) {
  if (!looks_) unsupported("look-around is not supported");
  PatternNode node;
  node.kind = PatternNode::Kind::ahead;
  node.negative = negative;
  node.looks = true;
  node.parts.push_back(choice(depth + 1));
  if (!take(")")) fail("a group without an end");
  return node;
}

PatternNode PatternParser::group(int depth) {
  const bool ignore_case = ignore_case_, dot_all = dot_all_;
  if (take("?=")) return ahead(false, depth);
  if (take("?!")) return ahead(true, depth);
  if (take("?")) {
    if (take("<=") || take("<!")) unsupported("look-behind is not supported");
    if (take("P=")) unsupported("back references are not supported");
    if (take(">") || take("(") || take("|") || take("#"))
      unsupported("this group is not supported");
    if (take("P<") || take("<")) {
      const std::size_t end = text_.find('>', at_);
      if (end == std::string_view::npos || end == at_) fail("a group's name without an end");
      at_ = end + 1;
    } else {
      for (; peek() == 'i' || peek() == 's'; ++at_)
        (peek() == 'i' ? ignore_case_ : dot_all_) = true;
      if (!take(":")) unsupported("these flags are not supported");
    }
  }
  PatternNode inner = choice(depth + 1);
  ignore_case_ = ignore_case;
  dot_all_ = dot_all;
  if (!take(")")) fail("a group without an end");
  return inner;
}

PatternNode PatternParser::escape() {
  if (done()) fail("a backslash at the end");
  const char letter = peek();
  if (letter == 'b' || letter == 'B') unsupported("word boundaries are not supported");
  if (letter == 'k' || (letter >= '1' && letter <= '9')) {
    unsupported("back references are not supported");
  }
  if (take("A")) return anchor(PatternNode::Kind::start);
  if (take("z") || take("Z")) return anchor(PatternNode::Kind::end);
  CharSet set;
  if (class_escape(set)) return chars(std::move(set));
  const char32_t c = char_escape();
  return chars(CharSet::of(c, c));
}

// {m}, {m,} or {m,n}; false, with at_ moved anywhere, when it is something else.
bool PatternParser::read_bounds(std::uint32_t& min, std::uint32_t& max) {
  const auto number = [&](std::uint32_t& out) {
    std::uint64_t value = 0;
    const std::size_t from = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = std::min<std::uint64_t>(value * 10 + static_cast<unsigned>(peek() - '0'), 1u << 30);
    }
    out = static_cast<std::uint32_t>(value);
    return at_ > from;
  };
  if (!take("{") || !number(min)) return false;
  max = min;
  if (take(",") && !number(max)) max = kUnbounded;
  return take("}");
}

PatternNode PatternParser::quantified(PatternNode inner) {
  for (bool first = true;; first = false) {
    std::uint32_t min = 0, max = kUnbounded;
    const std::size_t here = at_;
    if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!take("*") && !read_bounds(min, max)) {
      at_ = here;
      return inner;
    }
    if (!first) fail("nothing to repeat");
    if (max < min) fail("a repetition with its bounds exchanged");
    if (min > kMaxRepeat || (max != kUnbounded && max > kMaxRepeat)) {
      throw GrammarFailure(GrammarErrorKind::limit, "regular expression: too many repetitions");
    }
    if (inner.anchored) unsupported("a repeated anchor is not supported");
    if (inner.looks && (max > kMaxLooks || min > max)) {
      unsupported("look-ahead that is repeated without end is not supported");
    }
    take("?");  // lazy or not, the same texts match
    PatternNode node;
    node.kind = PatternNode::Kind::repeat;
    node.looks = inner.looks;
    node.parts.push_back(std::move(inner));
    node.min = min;
    node.max = max;
    inner = std::move(node);
  }
}

}  // namespace quire::structured
