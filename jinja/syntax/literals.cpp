#include "jinja/syntax/literals.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "jinja/error.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/big_int.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = char(std::tolower(static_cast<unsigned char>(c)));
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Digits with single underscores between them; 0 where there is none.
std::size_t span_digits(std::string_view text, int base) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (digit_value(text[i]) < base) {
      ++i;
    } else if (text[i] == '_' && i > 0 && i + 1 < text.size() && digit_value(text[i + 1]) < base) {
      i += 2;
    } else {
      break;
    }
  }
  return i;
}

Value integer_of(std::string_view digits, int base) {
  if (base == 10) {
    std::string plain;
    for (char c : digits) {
      if (c != '_') plain += c;
    }
    return Value(BigInt::parse(plain));
  }
  BigInt value;
  for (char c : digits) {
    if (c != '_') value = value * BigInt(base) + BigInt(digit_value(c));
  }
  return Value(std::move(value));
}

int base_of_prefix(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 10;
  switch (std::tolower(static_cast<unsigned char>(text[1]))) {
    case 'x':
      return 16;
    case 'o':
      return 8;
    case 'b':
      return 2;
    default:
      return 10;
  }
}

std::string without_underscores(std::string_view text) {
  std::string plain;
  for (char c : text) {
    if (c != '_') plain += c;
  }
  return plain;
}

// Digits of other scripts become those of ASCII.
std::string with_ascii_digits(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const char32_t c = unicode::next(text, i);
    unicode::append(
        out, c >= 0x80 && unicode::is_decimal(c) ? char32_t('0' + unicode::decimal_value(c)) : c);
  }
  return out;
}

// Length of ".5", "e3" or ".5e3" at the start; 0 where the number ends before.
std::size_t span_fraction(std::string_view text) {
  std::size_t length = 0;
  if (text.starts_with('.')) {
    const std::size_t digits = span_digits(text.substr(1), 10);
    if (digits == 0) return 0;
    length = 1 + digits;
  }
  if (length < text.size() && (text[length] == 'e' || text[length] == 'E')) {
    std::size_t exponent = length + 1;
    exponent += exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-');
    const std::size_t digits = span_digits(text.substr(std::min(exponent, text.size())), 10);
    if (digits > 0) length = exponent + digits;
  }
  return length;
}

// Reads exactly `digits` hexadecimal digits at `at`.
char32_t read_hex(std::string_view text, std::size_t& at, std::size_t digits, int line) {
  char32_t c = 0;
  for (std::size_t i = 0; i < digits; ++i, ++at) {
    if (at >= text.size() || digit_value(text[at]) >= 16) {
      fail(ErrorKind::syntax, "truncated \\x, \\u or \\U escape", line);
    }
    c = c << 4 | char32_t(digit_value(text[at]));
  }
  if (c > 0x10ffff) fail(ErrorKind::syntax, "illegal Unicode character", line);
  return c >= 0xd800 && c < 0xe000 ? 0xfffd : c;
}

char32_t read_octal(std::string_view text, std::size_t& at) {
  char32_t c = 0;
  for (int i = 0; i < 3 && at < text.size() && digit_value(text[at]) < 8; ++i) {
    c = c * 8 + char32_t(digit_value(text[at++]));
  }
  return c;
}

// Python decodes texts by way of ASCII, so that a backslash before é escapes the backslash of its
// escape.
void append_backslashed(std::string& out, char32_t c) {
  char hex[12];
  std::snprintf(hex, sizeof hex,
                c < 0x100     ? "x%02x"
                : c < 0x10000 ? "u%04x"
                              : "U%08x",
                unsigned(c));
  out.append("\\").append(hex);
}

}  // namespace

std::optional<NumberLiteral> read_number(std::string_view text, bool after_dot) {
  if (text.empty() || digit_value(text[0]) > 9) return {};
  const int base = base_of_prefix(text);
  if (base != 10) {
    std::string_view digits = text.substr(2);
    const bool underscore = digits.starts_with('_');
    const std::size_t length = span_digits(digits.substr(underscore), base);
    if (length > 0)
      return NumberLiteral{integer_of(digits.substr(underscore, length), base),
                           2 + underscore + length};
  }
  const std::size_t whole = span_digits(text, 10);
  const std::size_t fraction = after_dot ? 0 : span_fraction(text.substr(whole));
  if (fraction > 0) {
    const std::string plain = without_underscores(text.substr(0, whole + fraction));
    return NumberLiteral{Value(std::strtod(plain.c_str(), nullptr)), whole + fraction};
  }
  if (text[0] != '0') return NumberLiteral{integer_of(text.substr(0, whole), 10), whole};
  std::size_t zeros = text.find_first_not_of('0');
  zeros = zeros == text.npos ? text.size() : zeros;
  return NumberLiteral{Value(0), zeros};
}

std::string unescape(std::string_view quoted, int line) {
  std::string out;
  for (std::size_t i = 0; i < quoted.size();) {
    if (quoted[i] != '\\' || i + 1 == quoted.size()) {
      out.push_back(quoted[i++]);
      continue;
    }
    std::size_t after = ++i;
    const char32_t c = unicode::next(quoted, after);
    if (c >= '0' && c < '8') {
      unicode::append(out, read_octal(quoted, i));
      continue;
    }
    i = after;
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (c >= 0x80) {
      append_backslashed(out, c);
    } else if (const auto named = kNames.find(char(c)); named != kNames.npos) {
      out.push_back(kMeanings[named]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      unicode::append(out, read_hex(quoted, i, c == 'x' ? 2 : c == 'u' ? 4 : 8, line));
    } else if (c == 'N') {
      fail(ErrorKind::syntax, "unknown Unicode character name", line);
    } else if (c != '\n') {
      out.push_back('\\');
      out.push_back(char(c));
    }
  }
  return out;
}

std::optional<Value> parse_integer(std::string_view written, int base) {
  const std::string ascii = with_ascii_digits(unicode::strip(written, true, true));
  std::string_view text = ascii;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const int prefix = base_of_prefix(text);
  if (prefix != 10 && (base == 0 || base == prefix)) {
    base = prefix;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  }
  if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos) return {};
  }
  if (text.empty() || span_digits(text, base) != text.size()) return {};
  Value magnitude = integer_of(text, base);
  return negative ? negate(magnitude) : magnitude;
}

std::optional<double> parse_real(std::string_view written) {
  const std::string text = with_ascii_digits(unicode::strip(written, true, true));
  std::string_view body = text;
  const bool negative = body.starts_with('-');
  if (negative || body.starts_with('+')) body.remove_prefix(1);
  std::string lower(body);
  for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
  const double sign = negative ? -1 : 1;
  if (lower == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (lower == "inf" || lower == "infinity") return sign * std::numeric_limits<double>::infinity();
  const std::size_t whole = span_digits(body, 10);
  std::string_view tail = body.substr(whole);
  if (whole > 0 && tail.starts_with('.') && span_fraction(tail) == 0)
    tail.remove_prefix(1);  // "1." and "1.e3"
  const std::size_t fraction = span_fraction(tail);
  if (fraction != tail.size() || (whole == 0 && !body.starts_with('.'))) return {};
  return sign * std::strtod(without_underscores(body).c_str(), nullptr);
}

}  // namespace quire::jinja
