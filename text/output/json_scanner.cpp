#include "text/output/json_scanner.h"

#include <array>
#include <cctype>

#include "text/output/marker_matcher.h"

namespace quire {

using Status = JsonScanner::Status;

bool JsonScanner::accepts(std::string_view text) {
  JsonScanner scanner;
  Status status = Status::more;
  for (const char c : text) {
    if (status != Status::more) {
      if (!is_space(c)) return false;
      continue;
    }
    status = scanner.push(c);
    if (status == Status::broken) return false;
    if (status == Status::ended_before && !is_space(c)) return false;
  }
  return status != Status::more || scanner.push(' ') == Status::ended_before;
}

Status JsonScanner::push(char c) {
  if (in_string_) {
    if (!in_string(c)) return Status::broken;
    return in_string_ || string_is_key_ ? Status::more : end_value();
  }
  if (!word_.empty()) {
    if (c != word_.front()) return Status::broken;
    word_.remove_prefix(1);
    return word_.empty() ? end_value() : Status::more;
  }
  if (in_number_) {
    if (continues_number(c)) return Status::more;
    if (!number_may_end()) return Status::broken;
    in_number_ = false;
    if (end_value() == Status::done) return Status::ended_before;
  }
  return is_space(c) ? Status::more : structure(c);
}

// False where the string breaks; in_string_ is false after its end.
bool JsonScanner::in_string(char c) {
  if (escape_ < 0) {
    escape_ = c == 'u' ? 4 : 0;
    return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
  }
  if (escape_ > 0) {
    --escape_;
    return std::isxdigit(static_cast<unsigned char>(c)) != 0;
  }
  if (c == '\\') escape_ = -1;
  if (c == '"') {
    in_string_ = false;
    if (string_is_key_) expect_ = Expect::colon;
  }
  return static_cast<unsigned char>(c) >= 0x20;
}

Status JsonScanner::structure(char c) {
  switch (expect_) {
    case Expect::key_or_end:
      if (c == '}') break;
      [[fallthrough]];
    case Expect::key:
      in_string_ = string_is_key_ = true;
      return c == '"' ? Status::more : Status::broken;
    case Expect::colon:
      expect_ = Expect::value;
      return c == ':' ? Status::more : Status::broken;
    case Expect::value_or_end:
      if (c == ']') break;
      [[fallthrough]];
    case Expect::value:
      return begin_value(c);
    case Expect::comma_or_end:
      if (c != ',') break;
      expect_ = open_.back() == '{' ? Expect::key : Expect::value;
      return Status::more;
  }
  if (c != (open_.back() == '{' ? '}' : ']')) return Status::broken;
  open_.pop_back();
  return end_value();
}

Status JsonScanner::begin_value(char c) {
  if (c == '{' || c == '[') {
    open_ += c;
    expect_ = c == '{' ? Expect::key_or_end : Expect::value_or_end;
    return open_.size() <= kMaxDepth ? Status::more : Status::broken;
  }
  if (c == '"') {
    in_string_ = true;
    string_is_key_ = false;
    return Status::more;
  }
  for (const std::string_view word : {"true", "false", "null"}) {
    if (c != word.front()) continue;
    word_ = word.substr(1);
    return Status::more;
  }
  in_number_ = true;
  number_ = c == '-' ? Number::minus : c == '0' ? Number::zero : Number::digits;
  return c == '-' || (c >= '0' && c <= '9') ? Status::more : Status::broken;
}

Status JsonScanner::end_value() {
  expect_ = Expect::comma_or_end;
  return open_.empty() ? Status::done : Status::more;
}

bool JsonScanner::continues_number(char c) {
  const bool digit = c >= '0' && c <= '9';
  const bool whole = number_ == Number::zero || number_ == Number::digits;
  if (c == '.' && whole) {
    number_ = Number::dot;
  } else if ((c == 'e' || c == 'E') && (whole || number_ == Number::fraction)) {
    number_ = Number::e;
  } else if ((c == '+' || c == '-') && number_ == Number::e) {
    number_ = Number::sign;
  } else if (!digit || number_ == Number::zero) {
    return false;
  } else if (number_ == Number::minus) {
    number_ = c == '0' ? Number::zero : Number::digits;
  } else if (number_ == Number::dot) {
    number_ = Number::fraction;
  } else if (number_ == Number::e || number_ == Number::sign) {
    number_ = Number::exponent;
  }
  return true;
}

bool JsonScanner::number_may_end() const {
  return number_ == Number::zero || number_ == Number::digits || number_ == Number::fraction ||
         number_ == Number::exponent;
}

void append_json_byte(std::string& out, char c) {
  constexpr std::string_view kShort = "\b\t\n\f\r\"\\";
  constexpr std::string_view kLetters = "btnfr\"\\";
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (const auto at = kShort.find(c); at != kShort.npos) {
    out += '\\';
    out += kLetters[at];
  } else if (byte < 0x20) {
    out += "\\u00";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  } else {
    out += c;
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) append_json_byte(out, c);
  out += '"';
}

}  // namespace quire
