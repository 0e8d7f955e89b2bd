// Python's json.loads: integers of any size, NaN and Infinity, the last of equal keys. simdjson
// would refuse some of it.

#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "jinja/values/big_int.h"
#include "jinja/values/dict.h"
#include "jinja/values/unicode.h"
#include "jinja/values/value.h"

namespace quire::jinja {
namespace {

constexpr int kMaxDepth = 200;

class JsonParser {
 public:
  explicit JsonParser(std::string_view json) : json_(json) {}

  Value parse() {
    if (!unicode::valid(json_)) fail("not valid UTF-8");
    Value value = parse_value(0);
    skip_space();
    if (at_ < json_.size()) fail("text after the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Failure(ErrorCode::invalid_argument,
                  "JSON: " + problem + " at byte " + std::to_string(at_));
  }
  void skip_space() {
    while (at_ < json_.size() &&
           std::string_view(" \t\n\r").find(json_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool skip(std::string_view text) {
    if (!json_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  char peek() const { return at_ < json_.size() ? json_[at_] : '\0'; }

  Value parse_value(int depth);
  Value parse_list(int depth);
  Value parse_dict(int depth);
  Value parse_number();
  std::string parse_text();
  void parse_escape(std::string& out);
  char32_t parse_hex();

  std::string_view json_;
  std::size_t at_ = 0;
};

Value JsonParser::parse_value(int depth) {
  if (depth > kMaxDepth) fail("nested deeper than " + std::to_string(kMaxDepth));
  skip_space();
  switch (peek()) {
    case '{':
      return parse_dict(depth);
    case '[':
      return parse_list(depth);
    case '"':
      return Value(parse_text());
    default:
      break;
  }
  if (skip("null")) return Value();
  if (skip("true")) return Value(true);
  if (skip("false")) return Value(false);
  if (skip("NaN")) return Value(std::numeric_limits<double>::quiet_NaN());
  if (skip("Infinity")) return Value(std::numeric_limits<double>::infinity());
  if (skip("-Infinity")) return Value(-std::numeric_limits<double>::infinity());
  return parse_number();
}

Value JsonParser::parse_list(int depth) {
  ++at_;
  List items;
  skip_space();
  if (skip("]")) return Value(std::move(items));
  do {
    items.push_back(parse_value(depth + 1));
    skip_space();
  } while (skip(","));
  if (!skip("]")) fail("expected , or ]");
  return Value(std::move(items));
}

Value JsonParser::parse_dict(int depth) {
  ++at_;
  Dict dict;
  skip_space();
  if (skip("}")) return Value(std::move(dict));
  do {
    skip_space();
    if (peek() != '"') fail("expected a key");
    Value key(parse_text());
    skip_space();
    if (!skip(":")) fail("expected :");
    dict.set(std::move(key), parse_value(depth + 1));
    skip_space();
  } while (skip(","));
  if (!skip("}")) fail("expected , or }");
  return Value(std::move(dict));
}

Value JsonParser::parse_number() {
  const std::size_t begin = at_;
  const auto digits = [&] {
    const std::size_t first = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    if (at_ == first) fail("expected a value");
    return at_ - first;
  };
  skip("-");
  const bool leading_zero = peek() == '0';
  if (digits() > 1 && leading_zero) fail("a number that begins with 0");
  const std::size_t whole_end = at_;
  if (skip(".")) digits();
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    digits();
  }
  const std::string token(json_.substr(begin, at_ - begin));
  if (at_ > whole_end) return Value(std::strtod(token.c_str(), nullptr));
  if (token.size() > BigInt::kMaxDigits) fail("an integer of more than 4300 digits");
  return Value(BigInt::parse(token));
}

std::string JsonParser::parse_text() {
  ++at_;
  std::string out;
  for (;;) {
    const std::size_t begin = at_;
    while (at_ < json_.size() && json_[at_] != '"' && json_[at_] != '\\' &&
           static_cast<unsigned char>(json_[at_]) >= 0x20)
      ++at_;
    out.append(json_, begin, at_ - begin);
    if (at_ == json_.size()) fail("a string that does not end");
    if (skip("\"")) return out;
    if (!skip("\\")) fail("a control character in a string");
    parse_escape(out);
  }
}

void JsonParser::parse_escape(std::string& out) {
  const char c = peek();
  ++at_;
  static constexpr std::string_view kNames = "\"\\/bfnrt";
  static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (const std::size_t known = kNames.find(c); known != kNames.npos)
    return out.push_back(kMeanings[known]);
  if (c != 'u') fail("an unknown escape");
  char32_t unit = parse_hex();
  if (unit >= 0xd800 && unit < 0xdc00 && skip("\\u")) {
    const char32_t low = parse_hex();
    if (low < 0xdc00 || low >= 0xe000) fail("half a surrogate pair");
    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
  }
  if (unit >= 0xd800 && unit < 0xe000) fail("half a surrogate pair");
  unicode::append(out, unit);
}

char32_t JsonParser::parse_hex() {
  char32_t unit = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    const std::size_t digit = kDigits.find(char(peek() | 0x20));
    if (peek() == '\0' || digit == kDigits.npos || (peek() < '0'))
      fail("expected four hexadecimal digits");
    unit = unit << 4 | char32_t(digit);
  }
  return unit;
}

}  // namespace

Value parse_json(std::string_view json) { return JsonParser(json).parse(); }

}  // namespace quire::jinja
