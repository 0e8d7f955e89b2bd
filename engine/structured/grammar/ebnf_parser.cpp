#include "engine/structured/grammar/ebnf_parser.h"

#include <fmt/format.h>

#include <utility>

namespace quire::structured {
namespace {

constexpr int kMaxDepth = 200;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
  }
  put(0x80 | (c & 0x3f));
}

}  // namespace

void EbnfParser::fail(const std::string& what, GrammarErrorKind kind) const {
  throw GrammarFailure(kind, fmt::format("grammar, line {}: {}", line_, what));
}

bool EbnfParser::take(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

void EbnfParser::skip_space() {
  while (!done()) {
    if (peek() == '#') {
      while (!done() && peek() != '\n') ++at_;
    } else if (peek() == '\n') {
      ++line_;
      ++at_;
    } else if (peek() == ' ' || peek() == '\t' || peek() == '\r') {
      ++at_;
    } else {
      return;
    }
  }
}

std::string EbnfParser::name() {
  const std::size_t from = at_;
  while (is_name_char(peek())) ++at_;
  return std::string(text_.substr(from, at_ - from));
}

bool EbnfParser::at_rule() {
  const std::size_t here = at_;
  const int line = line_;
  const bool named = !name().empty();
  skip_space();
  const bool found = named && take("::=");
  at_ = here;
  line_ = line;
  return found;
}

std::vector<EbnfRule> EbnfParser::parse() {
  std::vector<EbnfRule> rules;
  for (skip_space(); !done(); skip_space()) {
    EbnfRule rule;
    rule.line = line_;
    rule.name = name();
    if (rule.name.empty()) fail("expected the name of a rule");
    skip_space();
    if (!take("::=")) fail(fmt::format("expected ::= after {}", rule.name));
    rule.body = choice(0);
    rules.push_back(std::move(rule));
  }
  return rules;
}

EbnfNode EbnfParser::choice(int depth) {
  if (depth > kMaxDepth) fail("groups nested too deeply", GrammarErrorKind::limit);
  EbnfNode node;
  node.kind = EbnfNode::Kind::choice;
  skip_space();
  if (take("|")) node.parts.emplace_back();  // ws ::= | " ", as llama.cpp writes it: the empty text
  do {
    node.parts.push_back(sequence(depth));
    skip_space();
  } while (take("|"));
  return node.parts.size() == 1 ? std::move(node.parts[0]) : node;
}

EbnfNode EbnfParser::sequence(int depth) {
  EbnfNode node;
  for (skip_space(); !done() && peek() != '|' && peek() != ')' && !at_rule(); skip_space()) {
    node.parts.push_back(quantified(atom(depth)));
  }
  if (node.parts.empty()) fail("an empty alternative (write \"\" for the empty text)");
  return node.parts.size() == 1 ? std::move(node.parts[0]) : node;
}

EbnfNode EbnfParser::atom(int depth) {
  EbnfNode node;
  node.line = line_;
  if (take("\"")) return literal();
  if (take("[")) return char_class();
  if (take(".")) {
    node.kind = EbnfNode::Kind::chars;
    node.chars = CharSet::all();
    return node;
  }
  if (take("(")) {
    if (peek() == '=') fail("look-ahead is not supported", GrammarErrorKind::unsupported);
    node = choice(depth + 1);
    skip_space();
    if (!take(")")) fail("a group without an end");
    return node;
  }
  node.kind = EbnfNode::Kind::name;
  node.text = name();
  if (node.text.empty()) fail(fmt::format("unexpected \"{}\"", peek()));
  return node;
}

std::uint32_t EbnfParser::number() {
  skip_space();
  if (peek() < '0' || peek() > '9') fail("expected a number");
  std::uint64_t value = 0;
  for (; peek() >= '0' && peek() <= '9'; ++at_) {
    value = value * 10 + static_cast<unsigned>(peek() - '0');
    if (value > 1'000'000) fail("too many repetitions", GrammarErrorKind::limit);
  }
  skip_space();
  return static_cast<std::uint32_t>(value);
}

EbnfNode EbnfParser::quantified(EbnfNode inner) {
  for (;;) {
    std::uint32_t min = 0, max = kUnbounded;
    if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      skip_space();
      min = peek() == ',' ? 0 : number();
      max = min;
      if (take(",")) {
        skip_space();
        max = peek() == '}' ? kUnbounded : number();
      }
      if (!take("}")) fail("a repetition without an end");
      if (max < min) fail("a repetition with its bounds exchanged");
    } else if (!take("*")) {
      return inner;
    }
    EbnfNode node;
    node.kind = EbnfNode::Kind::repeat;
    node.parts.push_back(std::move(inner));
    node.min = min;
    node.max = max;
    inner = std::move(node);
  }
}

char32_t EbnfParser::hex(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const char c = peek();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) fail("expected a hexadecimal digit");
    value = value * 16 + static_cast<char32_t>(digit);
  }
  if ((value >= 0xd800 && value <= 0xdfff) || value > CharSet::kLast) fail("no such character");
  return value;
}

char32_t EbnfParser::character() {
  if (done() || peek() == '\n') fail("a text or class without an end");
  if (!take("\\")) return next_char(text_, at_);
  if (done()) fail("a backslash at the end");
  const char letter = text_[at_++];
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'x':
      return hex(2);
    case 'u':
      return hex(4);
    case 'U':
      return hex(8);
    default:
      break;
  }
  constexpr std::string_view kItself = "\"\\[]-^'/";
  if (kItself.find(letter) == std::string_view::npos) fail(fmt::format("no escape \\{}", letter));
  return static_cast<unsigned char>(letter);
}

EbnfNode EbnfParser::literal() {
  EbnfNode node;
  node.kind = EbnfNode::Kind::text;
  node.line = line_;
  while (!take("\"")) append_utf8(node.text, character());
  return node;
}

EbnfNode EbnfParser::char_class() {
  EbnfNode node;
  node.kind = EbnfNode::Kind::chars;
  node.line = line_;
  const bool negated = take("^");
  while (!take("]")) {
    const char32_t first = character();
    char32_t last = first;
    if (peek() == '-' && text_.substr(at_, 2) != "-]") {
      ++at_;
      last = character();
    }
    if (last < first) fail("a range that ends before it begins");
    node.chars.add(first, last);
  }
  if (negated) node.chars = node.chars.complement();
  return node;
}

}  // namespace quire::structured
