// The parser of regular expressions, the part that reads single characters and classes of them.

#include <fmt/format.h>

#include "engine/structured/regex/pattern_nodes.h"
#include "engine/structured/regex/unicode_property.h"

namespace quire::structured {
namespace {

constexpr int kMaxProperties = 200;  // each holds hundreds of ranges

CharSet digits() { return CharSet::of('0', '9'); }

CharSet word_chars() {
  CharSet set = digits();
  set.add('a', 'z');
  set.add('A', 'Z');
  set.add('_', '_');
  return set;
}

CharSet spaces() {
  // Unicode's white space, without U+0085 and U+FEFF, on which dialects differ.
  CharSet set = CharSet::of('\t', '\r');
  for (const char32_t c :
       {U' ', U'\u00a0', U'\u1680', U'\u2028', U'\u2029', U'\u202f', U'\u205f', U'\u3000'}) {
    set.add(c, c);
  }
  set.add(0x2000, 0x200a);
  return set;
}

}  // namespace

bool PatternParser::class_escape(CharSet& set) {
  const char letter = peek();
  switch (letter) {
    case 'd':
    case 'D':
      set = digits();
      break;
    case 'w':
    case 'W':
      set = word_chars();
      break;
    case 's':
    case 'S':
      set = spaces();
      break;
    case 'p':
    case 'P':
      break;
    default:
      return false;
  }
  ++at_;
  if (letter == 'p' || letter == 'P') set = property();
  if (letter >= 'A' && letter <= 'Z') set = set.complement();
  return true;
}

// What follows \p: {NAME}, or one letter.
CharSet PatternParser::property() {
  if (done()) fail("a Unicode property without a name");
  if (++properties_ > kMaxProperties) {
    throw GrammarFailure(GrammarErrorKind::limit,
                         "regular expression: too many Unicode properties");
  }
  std::size_t length = 1;
  if (take("{")) {
    length = text_.find('}', at_);
    if (length == std::string_view::npos) fail("a Unicode property without an end");
    length -= at_;
  }
  const std::string_view name = text_.substr(at_, length);
  auto found = chars_of_property(name);
  if (!found) {
    unsupported(
        fmt::format("of Unicode's properties general categories are supported, {} is none", name));
  }
  at_ += length;
  if (peek() == '}' && text_[at_ - length - 1] == '{') ++at_;
  return *std::move(found);
}

char32_t PatternParser::hex(int count) {
  char32_t value = 0;
  for (int i = 0; i < count; ++i, ++at_) {
    const char c = peek();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) fail("expected a hexadecimal digit");
    value = value * 16 + static_cast<char32_t>(digit);
  }
  return value;
}

char32_t PatternParser::char_escape() {
  const char letter = peek();
  if (static_cast<unsigned char>(letter) >= 0x80) return next_char(text_, at_);
  ++at_;
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '0':
      if (peek() >= '0' && peek() <= '9') fail("octal escapes are not supported");
      return 0;
    case 'x':
      return hex(2);
    case 'c': {
      const char c = peek();
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) fail("expected a letter after \\c");
      ++at_;
      return static_cast<char32_t>(c & 31);
    }
    case 'u':
      break;
    default:
      if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')) {
        fail(fmt::format("no escape \\{}", letter));
      }
      return static_cast<unsigned char>(letter);
  }
  char32_t c = 0;
  if (take("{")) {
    const std::size_t end = text_.find('}', at_);
    if (end == std::string_view::npos || end == at_ || end - at_ > 6) fail("a bad \\u{…}");
    c = hex(static_cast<int>(end - at_));
    ++at_;
  } else {
    c = hex(4);
    if (c >= 0xd800 && c < 0xdc00 && take("\\u")) {
      const char32_t low = hex(4);
      if (low < 0xdc00 || low > 0xdfff) fail("half a surrogate pair");
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
  }
  if ((c >= 0xd800 && c <= 0xdfff) || c > CharSet::kLast) fail("no such character");
  return c;
}

bool PatternParser::class_member(CharSet& set, char32_t& c) {
  if (done()) fail("a class without an end");
  if (text_.substr(at_, 2) == "[:") unsupported("POSIX classes are not supported");
  if (!take("\\")) {
    c = next_char(text_, at_);
    set = CharSet::of(c, c);
    return true;
  }
  if (done()) fail("a backslash at the end");
  if (class_escape(set)) return false;
  if (take("b")) {
    c = '\b';
  } else if (peek() >= '1' && peek() <= '9') {
    fail("octal escapes are not supported");
  } else {
    c = char_escape();
  }
  set = CharSet::of(c, c);
  return true;
}

PatternNode PatternParser::char_class() {
  const bool negated = take("^");
  if (peek() == ']' && text_.find(']', at_ + 1) != text_.npos) {
    unsupported(
        "a ] that comes first in a class is a member to some and its end to others: write \\]; "
        "this");
  }
  CharSet set;
  while (!take("]")) {
    CharSet member, last;
    char32_t low = 0, high = 0;
    const bool single = class_member(member, low);
    if (peek() == '-' && text_.substr(at_, 2) != "-]") {
      ++at_;
      const bool is_range = class_member(last, high) && single;
      if (is_range && high < low) fail("a range that ends before it begins");
      if (is_range) {
        set.add(low, high);
      } else {  // [\w-.]: beside a class the hyphen is itself
        set.add(member);
        set.add(last);
        set.add('-', '-');
      }
    } else {
      set.add(member);
    }
  }
  if (ignore_case_) set.fold_ascii_case();
  PatternNode node = chars(negated ? set.complement() : set);
  return node;
}

}  // namespace quire::structured
