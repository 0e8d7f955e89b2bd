#include "jinja/values/format_spec.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/operators.h"
#include "jinja/values/repr.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

constexpr std::int64_t kMaxPrecision = 1000;  // digits after the point that anyone may ask for

bool is_align(char32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

std::int64_t read_count(std::string_view& text) {
  std::int64_t n = -1;
  while (!text.empty() && std::isdigit(static_cast<unsigned char>(text[0]))) {
    if (n > INT32_MAX) fail(ErrorKind::value, "Too many decimal digits in format string");
    n = std::max<std::int64_t>(n, 0) * 10 + (text[0] - '0');
    text.remove_prefix(1);
  }
  return n;
}

[[noreturn]] void fail_code(char type, const Value& value) {
  fail(ErrorKind::value, std::string("Unknown format code '") + type + "' for object of type '" +
                             std::string(type_name(value)) + "'");
}

void group_digits(std::string& number, char separator, std::size_t every) {
  std::size_t begin = number.find_first_of("0123456789abcdefABCDEF");
  if (begin == number.npos) return;
  std::size_t end = begin;
  while (end < number.size() && std::isxdigit(static_cast<unsigned char>(number[end]))) ++end;
  for (std::size_t at = end; at > begin + every;) {
    at -= every;
    number.insert(at, 1, separator);
  }
}

// Sign, prefix and digits apart, so that zeros and fill can go between them.
struct NumberParts {
  std::string sign;
  std::string prefix;
  std::string digits;
};

std::string assemble(Evaluation& evaluation, NumberParts parts, const FormatSpec& spec) {
  const std::size_t every =
      spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b' ? 4 : 3;
  const auto width = std::size_t(std::max<std::int64_t>(spec.width, 0));
  const std::size_t lead = parts.sign.size() + parts.prefix.size();
  if (spec.align == '=') {
    evaluation.charge_text(width);
    if (spec.fill == '0' && spec.grouping != 0) {
      std::string grouped = parts.digits;
      group_digits(grouped, spec.grouping, every);
      while (lead + grouped.size() < width) {
        parts.digits.insert(0, 1, '0');
        grouped = parts.digits;
        group_digits(grouped, spec.grouping, every);
      }
      return parts.sign + parts.prefix + grouped;
    }
  }
  if (spec.grouping != 0) group_digits(parts.digits, spec.grouping, every);
  if (spec.align != '=')
    return pad_text(evaluation, parts.sign + parts.prefix + parts.digits, spec, '>');
  std::string fill;
  for (std::size_t n = lead + parts.digits.size(); n < width; ++n) unicode::append(fill, spec.fill);
  return parts.sign + parts.prefix + fill + parts.digits;
}

std::string sign_for(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' || sign == ' ' ? std::string(1, sign) : "";
}

std::string format_whole(Evaluation& evaluation, const Value& value, const FormatSpec& spec) {
  if (spec.precision >= 0)
    fail(ErrorKind::value, "Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    const std::int64_t c = as_index(value);
    if (c < 0 || c >= 0x110000) fail(ErrorKind::overflow, "%c arg not in range(0x110000)");
    std::string text;
    unicode::append(text, char32_t(c));
    return pad_text(evaluation, std::move(text), spec, '<');
  }
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  std::string digits = format_integer(value, base, spec.type == 'X');
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + spec.type : "";
  return assemble(evaluation, {sign_for(negative, spec.sign), prefix, std::move(digits)}, spec);
}

std::string format_number(Evaluation& evaluation, const Value& value, const FormatSpec& spec) {
  double real = to_real(value);
  char type = spec.type;
  std::int64_t precision = spec.precision;
  if (type == '%') {
    real *= 100;
    type = 'f';
  } else if (type == 'n') {
    type = 'g';
  } else if (type == 0) {
    type = precision < 0 ? 'r' : 's';  // as repr, or as 'g' with a digit after the point
  }
  std::string digits = format_real(std::fabs(real), type, precision, spec.alternate);
  if (spec.type == '%') digits += '%';
  return assemble(
      evaluation,
      {sign_for(std::signbit(real) && !std::isnan(real), spec.sign), "", std::move(digits)}, spec);
}

// Python's format without a type but with a precision: 'g', but never without a point where the
// number has none.
std::string format_general_with_point(double value, std::int64_t precision) {
  std::string text = format_real(value, 'g', precision, false);
  const std::size_t exponent = text.find('e');
  const double magnitude = value == 0 ? 0 : std::floor(std::log10(value));
  if (exponent == text.npos && text.find('.') == text.npos && std::isfinite(value)) {
    if (magnitude >= double(precision) - 1 && value != 0)
      return format_real(value, 'e', std::max<std::int64_t>(precision - 1, 0), false);
    text += ".0";
  }
  return text;
}

}  // namespace

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  if (!text.empty()) {
    std::size_t after = 0;
    const char32_t first = unicode::next(text, after);
    if (after < text.size() && is_align(char32_t(text[after]))) {
      spec.fill = first;
      spec.align = text[after];
      text.remove_prefix(after + 1);
    } else if (is_align(first)) {
      spec.align = char(first);
      text.remove_prefix(1);
    }
  }
  const auto take = [&](std::string_view choices) -> char {
    if (text.empty() || choices.find(text[0]) == choices.npos) return 0;
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  take("z");
  spec.alternate = take("#") != 0;
  if (take("0") != 0) {
    if (spec.align == 0) {
      spec.fill = '0';
      spec.align = '=';
    }
  }
  spec.width = std::max<std::int64_t>(read_count(text), 0);
  spec.grouping = take(",_");
  if (take(".") != 0) {
    spec.precision = read_count(text);
    if (spec.precision < 0) fail(ErrorKind::value, "Format specifier missing precision");
  }
  if (text.size() > 1) fail(ErrorKind::value, "Invalid format specifier");
  if (!text.empty()) spec.type = text[0];
  return spec;
}

std::string format_integer(const Value& integer, int base, bool upper) {
  if (base == 10) return to_big(integer).to_string();
  BigInt rest = to_big(integer);
  const bool negative = rest.negative();
  if (negative) rest = -rest;
  std::string digits;
  do {
    const BigInt::QuotientRemainder split = BigInt::divide(rest, BigInt(base));
    digits.push_back((upper ? "0123456789ABCDEF" : "0123456789abcdef")[split.remainder.to_int64()]);
    rest = split.quotient;
  } while (!rest.zero());
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string format_real(double value, char type, std::int64_t precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(value)) {
    const std::string name = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    return upper ? unicode::upper(name) : name;
  }
  if (type == 'r') return repr(value);
  if (type == 's') return format_general_with_point(value, std::max<std::int64_t>(precision, 1));
  if (precision > kMaxPrecision) {
    fail(ErrorKind::limit, "a number with more than " + std::to_string(kMaxPrecision) + " digits");
  }
  const std::string format = std::string(alternate ? "%#.*" : "%.*") + type;
  char buffer[kMaxPrecision + 400];
  std::snprintf(buffer, sizeof buffer, format.c_str(), int(precision < 0 ? 6 : precision), value);
  return buffer;
}

std::string pad_text(Evaluation& evaluation, std::string text, const FormatSpec& spec,
                     char default_align) {
  const std::int64_t missing = spec.width - std::int64_t(unicode::count(text));
  if (missing <= 0) return text;
  evaluation.charge_text(std::uint64_t(missing) * 4);
  const char align = spec.align == 0 ? default_align : spec.align;
  const std::int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  for (std::int64_t i = 0; i < before; ++i) unicode::append(out, spec.fill);
  out += text;
  for (std::int64_t i = before; i < missing; ++i) unicode::append(out, spec.fill);
  return out;
}

std::string format_value(Evaluation& evaluation, const Value& value, const FormatSpec& spec) {
  const bool plain = spec.type == 0 && spec.width == 0 && spec.precision < 0 && spec.align == 0 &&
                     spec.grouping == 0 && spec.sign == '-' && !spec.alternate;
  if (plain) return to_text(value);
  const std::string_view kReal = "eEfFgGn%";
  if (is_integral(value) &&
      (spec.type == 0 || std::string_view("bcdoxXn").find(spec.type) != std::string_view::npos)) {
    return format_whole(evaluation, value, spec);
  }
  if (is_number(value)) {
    if (spec.type != 0 && kReal.find(spec.type) == kReal.npos) fail_code(spec.type, value);
    return format_number(evaluation, value, spec);
  }
  if (!value.is_string()) {
    fail(ErrorKind::type,
         "unsupported format string passed to " + std::string(type_name(value)) + ".__format__");
  }
  if (spec.type != 0 && spec.type != 's') fail_code(spec.type, value);
  if (spec.align == '=')
    fail(ErrorKind::value, "'=' alignment not allowed in string format specifier");
  if (spec.sign != '-') fail(ErrorKind::value, "Sign not allowed in string format specifier");
  if (spec.alternate)
    fail(ErrorKind::value, "Alternate form (#) not allowed in string format specifier");
  if (spec.grouping != 0)
    fail(ErrorKind::value, std::string("Cannot specify '") + spec.grouping + "' with 's'.");
  const std::string& text = value.string();
  const std::size_t length =
      spec.precision < 0 ? text.size() : unicode::skip(text, std::size_t(spec.precision));
  return pad_text(evaluation, text.substr(0, length), spec, '<');
}

}  // namespace quire::jinja
