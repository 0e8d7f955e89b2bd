#include "base/json_parser.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace quire {

namespace {

constexpr std::size_t kMaxDepth = 1000;  // as deep as Python reads
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_surrogate(std::uint32_t unit) { return unit >= 0xD800 && unit < 0xE000; }

// Of a string's bytes, those that stand for themselves.
bool is_plain(char c) { return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20; }

}  // namespace

void JsonParser::fail(const std::string& problem, std::size_t at) const {
  throw Failure(ErrorCode::invalid_argument, document_.prefix() + "not JSON: " + problem +
                                                 " at line " + std::to_string(line_) + ", column " +
                                                 std::to_string(at - line_begin_ + 1));
}

void JsonParser::check_utf8() {
  const char* const begin = text_.data();
  const char* const end = begin + text_.size();
  for (const char* at = begin; at < end;) {
    std::uint64_t word = 0;
    if (end - at >= 8) {
      std::memcpy(&word, at, 8);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Step step = utf8_step(at, end);
    if (step.kind != Utf8Step::valid) {
      const auto place = static_cast<std::size_t>(at - begin);
      line_ += std::count(begin, at, '\n');
      line_begin_ = text_.rfind('\n', place) + 1;  // npos + 1: the first line
      fail("not UTF-8", place);
    }
    at += step.length;
  }
}

void JsonParser::parse() {
  if (text_.size() > std::numeric_limits<std::uint32_t>::max()) fail("more than 4 GiB", 0);
  check_utf8();
  skip(kByteOrderMark);
  parse_value();
  while (!stack_.empty()) {
    skip_space();
    const Open top = stack_.back();
    JsonDocument::Node& node = nodes_[top.node];
    if (node.size > 0 && !skip(',')) {
      if (!skip(top.is_object ? '}' : ']')) {
        fail(top.is_object ? "expected , or }" : "expected , or ]", at_);
      }
      close();
      continue;
    }
    ++node.size;
    if (top.is_object) parse_name();
    parse_value();
  }
  skip_space();
  if (at_ < text_.size()) fail("text after the value", at_);
  nodes_.shrink_to_fit();
}

void JsonParser::skip_space() {
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

bool JsonParser::skip(char c) {
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

bool JsonParser::skip(std::string_view word) {
  if (text_.compare(at_, word.size(), word) != 0) return false;
  at_ += word.size();
  return true;
}

void JsonParser::parse_value() {
  skip_space();
  if (at_ == text_.size()) fail("the text ends where a value should be", at_);
  const std::size_t begin = at_;
  switch (text_[at_]) {
    case '{':
      return open(Kind::object, '}');
    case '[':
      return open(Kind::array, ']');
    case '"':
      return parse_string();
    default:
      break;
  }
  if (skip("null")) return add(Kind::null, begin, 4);
  if (skip("true")) return add(Kind::boolean, begin, 4);
  if (skip("false")) return add(Kind::boolean, begin, 5);
  if (skip("NaN") || skip("Infinity") || skip("-Infinity")) {
    return add(Kind::number, begin, at_ - begin);
  }
  parse_number();
}

void JsonParser::parse_name() {
  skip_space();
  if (at_ == text_.size() || text_[at_] != '"') fail("expected a name in quotes", at_);
  parse_string();
  skip_space();
  if (!skip(':')) fail("expected :", at_);
}

void JsonParser::open(Kind kind, char close) {
  if (stack_.size() == kMaxDepth) {
    fail("nested deeper than " + std::to_string(kMaxDepth), at_);
  }
  const auto node = static_cast<std::uint32_t>(nodes_.size());
  add(kind, at_, 0);
  ++at_;
  skip_space();
  if (!skip(close)) stack_.push_back({node, kind == Kind::object});
}

void JsonParser::close() {
  nodes_[stack_.back().node].next = static_cast<std::uint32_t>(nodes_.size());
  stack_.pop_back();
}

void JsonParser::add(Kind kind, std::size_t begin, std::size_t size) {
  nodes_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size),
                    static_cast<std::uint32_t>(nodes_.size() + 1), kind});
}

void JsonParser::parse_string() {
  const std::size_t begin = ++at_;
  std::size_t out = begin;
  for (;;) {
    const std::size_t plain = at_;
    while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
    if (out != plain) std::memmove(&text_[out], &text_[plain], at_ - plain);
    out += at_ - plain;
    if (at_ == text_.size()) fail("a string that does not end", at_);
    if (skip('"')) return add(Kind::string, begin, out - begin);
    if (!skip('\\')) fail("a control character in a string", at_);
    out = parse_escape(out);
  }
}

// Writes what the escape behind the backslash means to text_[out…], which is never longer than the
// escape; gives the place behind it.
std::size_t JsonParser::parse_escape(std::size_t out) {
  static constexpr std::string_view kNames = "\"\\/bfnrt";
  static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (at_ == text_.size()) fail("a string that does not end", at_);
  const char name = text_[at_++];
  if (const std::size_t known = kNames.find(name); known != kNames.npos) {
    text_[out] = kMeanings[known];
    return out + 1;
  }
  if (name != 'u') fail("an unknown escape", at_ - 1);
  std::uint32_t unit = parse_hex();
  if (unit >= 0xD800 && unit < 0xDC00 && skip("\\u")) {
    const std::uint32_t low = parse_hex();
    if (low >= 0xDC00 && low < 0xE000) {
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    } else {
      at_ -= 6;  // a character of its own
    }
  }
  std::string character;
  utf8_append(character, is_surrogate(unit) ? char32_t{0xFFFD} : char32_t{unit});
  std::memcpy(&text_[out], character.data(), character.size());
  return out + character.size();
}

std::uint32_t JsonParser::parse_hex() {
  std::uint32_t unit = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      unit = unit << 4 | static_cast<std::uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      unit = unit << 4 | static_cast<std::uint32_t>(lower - 'a' + 10);
    } else {
      fail("expected four hexadecimal digits", at_);
    }
  }
  return unit;
}

void JsonParser::parse_number() {
  const std::size_t begin = at_;
  const auto digits = [&] {
    const std::size_t first = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == first) fail(first == begin ? "expected a value" : "expected a digit", at_);
  };
  skip('-');
  const bool zero = at_ < text_.size() && text_[at_] == '0';
  const std::size_t whole = at_;
  digits();
  if (zero && at_ - whole > 1) fail("a number that begins with 0", whole);
  if (skip('.')) digits();
  if (skip('e') || skip('E')) {
    if (!skip('+')) skip('-');
    digits();
  }
  add(Kind::number, begin, at_ - begin);
}

}  // namespace quire
