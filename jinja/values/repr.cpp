#include "jinja/values/repr.h"

#include <charconv>
#include <cmath>

#include "jinja/error.h"
#include "jinja/values/big_int.h"
#include "jinja/values/dict.h"
#include "jinja/values/object.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

constexpr std::size_t kMaxBytes = 16 << 20;
constexpr int kMaxDepth = 2 * kMaxNesting;

void append_hex(std::string& out, char32_t c, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out.push_back("0123456789abcdef"[c >> shift & 15]);
}

void append_escaped(std::string& out, char32_t c, char quote) {
  if (c == '\\' || c == char32_t(quote)) {
    out.push_back('\\');
    out.push_back(char(c));
  } else if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (unicode::is_printable(c)) {
    unicode::append(out, c);
  } else if (c < 0x100) {
    append_hex(out += "\\x", c, 2);
  } else if (c < 0x10000) {
    append_hex(out += "\\u", c, 4);
  } else {
    append_hex(out += "\\U", c, 8);
  }
}

void append_quoted(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out.push_back(quote);
  for (std::size_t i = 0; i < text.size();) append_escaped(out, unicode::next(text, i), quote);
  out.push_back(quote);
}

void append_items(std::string& out, const List& items, char open, char close, int depth) {
  out.push_back(open);
  const char* separator = "";
  for (const Value& item : items) {
    append_repr(out += separator, item, depth + 1);
    separator = ", ";
  }
  if (open == '(' && items.size() == 1) out.push_back(',');
  out.push_back(close);
}

void append_dict(std::string& out, const Dict& dict, int depth) {
  out.push_back('{');
  const char* separator = "";
  for (const auto& [key, value] : dict) {
    append_repr(out += separator, key, depth + 1);
    append_repr(out += ": ", value, depth + 1);
    separator = ", ";
  }
  out.push_back('}');
}

void append_quoted_safe(std::string& out, const Text& text) {
  if (text.safe) out += "Markup(";
  append_quoted(out, text.utf8);
  if (text.safe) out += ")";
}

std::string scalar_text(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.boolean() ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.integer());
    case Kind::big_integer:
      return value.big_integer().to_string();
    case Kind::real:
      return repr(value.real());
    default:
      return "missing";
  }
}

// "d.ddde+XX" of std::to_chars, laid out as Python does: plain between 1e-4 and 1e16.
std::string layout(std::string_view scientific) {
  const bool negative = scientific.starts_with('-');
  if (negative) scientific.remove_prefix(1);
  const std::size_t e = scientific.find('e');
  std::string digits(1, scientific[0]);
  if (e > 2) digits += scientific.substr(2, e - 2);
  const int exponent = std::stoi(std::string(scientific.substr(e + 1)));
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out.append(1, '.').append(digits, 1);
    return out.append(scientific.substr(e));
  }
  if (exponent < 0) return out.append("0.").append(std::size_t(-exponent - 1), '0').append(digits);
  const std::size_t whole = std::size_t(exponent) + 1;
  if (digits.size() <= whole)
    return out.append(digits).append(whole - digits.size(), '0').append(".0");
  return out.append(digits, 0, whole).append(1, '.').append(digits, whole);
}

}  // namespace

void Object::append_repr(std::string& out, int) const {
  out.append("<").append(type_name()).append(" object>");
}

std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  return layout(std::string_view(buffer, std::size_t(end.ptr - buffer)));
}

std::string repr(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

void append_text(std::string& out, const Value& value) {
  if (value.is_string()) {
    out += value.string();
  } else if (!value.is_undefined()) {
    append_repr(out, value);
  }
}

void append_repr(std::string& out, const Value& value, int depth) {
  if (depth > kMaxDepth)
    fail(ErrorKind::recursion,
         "maximum recursion depth exceeded while getting the repr of an object");
  if (out.size() > kMaxBytes)
    fail(ErrorKind::limit, "a text of more than " + std::to_string(kMaxBytes) + " bytes");
  switch (value.kind()) {
    case Kind::string:
      append_quoted_safe(out, value.text());
      break;
    case Kind::list:
      append_items(out, value.list(), '[', ']', depth);
      break;
    case Kind::tuple:
      append_items(out, value.tuple().items, '(', ')', depth);
      break;
    case Kind::dict:
      append_dict(out, value.dict(), depth);
      break;
    case Kind::object:
      value.object()->append_repr(out, depth);
      break;
    default:
      out += scalar_text(value);
  }
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.string();
  std::string out;
  append_text(out, value);
  return out;
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

}  // namespace quire::jinja
