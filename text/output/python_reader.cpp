#include "text/output/python_reader.h"

#include <fmt/format.h>

#include "text/output/json_scanner.h"
#include "text/output/marker_matcher.h"

namespace quire {
namespace {

using Status = PythonLiteral::Status;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_identifier(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_word(char c) { return is_identifier(c) || c == '+' || c == '-' || c == '.'; }

void append_utf8(std::string& out, std::uint32_t code) {
  const auto add = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    append_json_byte(out, static_cast<char>(code));
  } else if (code < 0x800) {
    add(0xC0 | code >> 6), add(0x80 | (code & 63));
  } else if (code >= 0xD800 && code < 0xE000) {
    out += fmt::format("\\u{:04x}", code);  // half of a pair, which JSON can say
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12), add(0x80 | (code >> 6 & 63)), add(0x80 | (code & 63));
  } else {
    add(0xF0 | code >> 18), add(0x80 | (code >> 12 & 63)), add(0x80 | (code >> 6 & 63));
    add(0x80 | (code & 63));
  }
}

// A number or a constant as JSON; empty: it is neither.
std::string word_as_json(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  std::string number;
  for (const char c : word.substr(word.starts_with('+') ? 1 : 0)) {
    if (c != '_') number += c;
  }
  const std::size_t first = number.starts_with('-') ? 1 : 0;
  if (number.size() > first && number[first] == '.') number.insert(first, "0");
  if (const auto dot = number.find('.');
      dot != number.npos && (dot + 1 == number.size() || !is_digit(number[dot + 1]))) {
    number.insert(dot + 1, "0");
  }
  return JsonScanner::accepts(number) ? number : std::string();
}

}  // namespace

std::string PythonLiteral::to_json(std::string_view text) {
  PythonLiteral literal;
  std::string json;
  Status status = Status::more;
  for (const char c : text) {
    if (status == Status::more) {
      status = literal.push(c, json);
      if (status == Status::done) continue;
    }
    if (status == Status::broken || (status != Status::more && !is_space(c))) return {};
  }
  if (status == Status::more) status = literal.push(' ', json);
  return status == Status::ended_before || status == Status::done ? json : std::string();
}

Status PythonLiteral::push(char c, std::string& json) {
  switch (in_) {
    case In::word:
      if (!is_word(c)) return end_word(c, json);
      word_ += c;
      return word_.size() <= kMaxWord ? Status::more : Status::broken;
    case In::opening:
      return in_opening(c, json);
    case In::digits:
      if (in_digits(c, json)) return Status::more;
      if (in_ != In::string) return Status::broken;
      [[fallthrough]];
    case In::string:
      return in_string(c, json);
    case In::escape:
      return in_escape(c, json) ? Status::more : Status::broken;
    case In::closing:
      return in_closing(c, json);
    case In::structure:
      break;
  }
  return is_space(c) ? Status::more : structure(c, json);
}

Status PythonLiteral::structure(char c, std::string& json) {
  const bool ends = !close_.empty() && c == close_.back();
  switch (expect_) {
    case Expect::colon:
      expect_ = Expect::value;
      json += ": ";
      return c == ':' ? Status::more : Status::broken;
    case Expect::comma_or_end:
      if (ends) break;
      expect_ = open_.back() == '{' ? Expect::key_or_end : Expect::value_or_end;
      needs_comma_ = true;
      return c == ',' ? Status::more : Status::broken;
    case Expect::value_or_end:
    case Expect::key_or_end:
      if (ends) break;
      [[fallthrough]];
    case Expect::value:
      if (std::exchange(needs_comma_, false)) json += ", ";
      return begin_value(c, json);
  }
  needs_comma_ = false;
  json += open_.back() == '{' ? '}' : ']';
  open_.pop_back();
  close_.pop_back();
  expect_ = Expect::value;  // what ends was a value, whatever was expected inside
  return end_value(Status::done);
}

Status PythonLiteral::begin_value(char c, std::string& json) {
  has_begun_ = true;
  const bool is_key = expect_ == Expect::key_or_end;
  if (c == '"' || c == '\'') {
    json += '"';
    in_ = In::opening;
    quote_ = c;
    quotes_ = 1;
    raw_ = triple_ = false;
    return Status::more;
  }
  if (!is_key && (c == '[' || c == '(' || c == '{')) {
    json += c == '{' ? '{' : '[';
    open_ += c == '{' ? '{' : '[';
    close_ += c == '{' ? '}' : c == '(' ? ')' : ']';
    expect_ = c == '{' ? Expect::key_or_end : Expect::value_or_end;
    return open_.size() <= kMaxDepth ? Status::more : Status::broken;
  }
  word_ = c;
  in_ = In::word;
  return is_word(c) ? Status::more : Status::broken;
}

Status PythonLiteral::end_value(Status outermost) {
  in_ = In::structure;
  if (open_.empty()) return outermost;
  expect_ = expect_ == Expect::key_or_end ? Expect::colon : Expect::comma_or_end;
  return Status::more;
}

Status PythonLiteral::end_word(char c, std::string& json) {
  if (c == '"' || c == '\'') {  // r'…', u'…'
    if (word_ != "r" && word_ != "R" && word_ != "u" && word_ != "U") return Status::broken;
    const bool raw = word_ == "r" || word_ == "R";
    const Status status = begin_value(c, json);
    raw_ = raw;
    return status;
  }
  const bool is_key = expect_ == Expect::key_or_end;
  const std::string value = word_as_json(word_);
  if (value.empty()) return Status::broken;
  json += is_key ? '"' + value + '"' : value;
  const Status status = end_value(Status::ended_before);
  return status == Status::more ? push(c, json) : status;
}

// After one quote or two: '' is a string already, ''' begins one.
Status PythonLiteral::in_opening(char c, std::string& json) {
  if (c == quote_) {
    triple_ = ++quotes_ == 3;
    if (triple_) in_ = In::string;
    quotes_ = triple_ ? 0 : quotes_;
    return Status::more;
  }
  if (quotes_ == 2) {
    const Status status = end_string(Status::ended_before, json);
    return status == Status::more ? push(c, json) : status;
  }
  in_ = In::string;
  quotes_ = 0;
  return in_string(c, json);
}

Status PythonLiteral::in_string(char c, std::string& json) {
  in_ = In::string;
  if (c == quote_) {
    if (!triple_) return end_string(Status::done, json);
    in_ = In::closing;
    quotes_ = 1;
  } else if (c == '\\') {
    in_ = In::escape;
  } else {
    append_json_byte(json, c);
  }
  return Status::more;
}

// After quotes in a triple-quoted string, of which three end it.
Status PythonLiteral::in_closing(char c, std::string& json) {
  if (c == quote_) {
    return ++quotes_ == 3 ? end_string(Status::done, json) : Status::more;
  }
  for (; quotes_ > 0; --quotes_) append_json_byte(json, quote_);
  return in_string(c, json);
}

Status PythonLiteral::end_string(Status outermost, std::string& json) {
  json += '"';
  return end_value(outermost);
}

bool PythonLiteral::in_escape(char c, std::string& json) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"";
  constexpr std::string_view kBytes = "\a\b\f\n\r\t\v\\'\"";
  in_ = In::string;
  if (raw_) {
    append_json_byte(json, '\\');
    append_json_byte(json, c);
  } else if (const auto at = kLetters.find(c); at != kLetters.npos) {
    append_json_byte(json, kBytes[at]);
  } else if (c == 'x' || c == 'u' || c == 'U' || (c >= '0' && c <= '7')) {
    in_ = In::digits;
    octal_ = is_digit(c);
    digits_left_ = octal_ ? 2 : c == 'x' ? 2 : c == 'u' ? 4 : 8;
    code_ = octal_ ? static_cast<std::uint32_t>(c - '0') : 0;
  } else if (c == 'N') {
    return false;          // a character by its Unicode name
  } else if (c != '\n') {  // which continues the line
    append_json_byte(json, '\\');
    append_json_byte(json, c);
  }
  return true;
}

// False: this byte is none of the escape's. Then in_ is `string` where the escape was complete.
bool PythonLiteral::in_digits(char c, std::string& json) {
  const std::uint32_t value = is_digit(c)              ? static_cast<std::uint32_t>(c - '0')
                              : (c >= 'a' && c <= 'f') ? static_cast<std::uint32_t>(c - 'a' + 10)
                              : (c >= 'A' && c <= 'F') ? static_cast<std::uint32_t>(c - 'A' + 10)
                                                       : 16;
  if (value >= (octal_ ? 8u : 16u)) {
    if (octal_) end_digits(json);
    return false;
  }
  code_ = code_ * (octal_ ? 8 : 16) + value;
  if (--digits_left_ > 0) return true;
  if (code_ > 0x10FFFF) return false;
  end_digits(json);
  return true;
}

void PythonLiteral::end_digits(std::string& json) {
  append_utf8(json, code_);
  in_ = In::string;
}

KeywordsReader::Status KeywordsReader::push(char c, std::string& json) {
  if (expect_ == Expect::value) return in_value(c, json);
  if (expect_ == Expect::in_key) {
    if (is_identifier(c)) {
      key_ += c;
      return key_.size() <= 256 ? Status::more : Status::broken;
    }
    expect_ = Expect::equals;
  }
  if (is_space(c)) return Status::more;
  switch (expect_) {
    case Expect::comma_or_end:
      if (c == ',') {
        expect_ = Expect::key_or_end;
        return Status::more;
      }
      [[fallthrough]];
    case Expect::key_or_end:
      if (c == ')') {
        json += has_any_ ? "}" : "{}";
        return Status::done;
      }
      if (expect_ == Expect::comma_or_end) return Status::broken;
      key_ = c;
      expect_ = Expect::in_key;
      return is_identifier(c) && !is_digit(c) ? Status::more : Status::broken;
    default:  // equals
      expect_ = Expect::value;
      value_ = PythonLiteral();
      return c == '=' ? Status::more : Status::broken;
  }
}

KeywordsReader::Status KeywordsReader::in_value(char c, std::string& json) {
  std::string value;
  const bool had_begun = value_.has_begun();
  const PythonLiteral::Status status = value_.push(c, value);
  if (status == PythonLiteral::Status::broken) return Status::broken;
  if (!had_begun && value_.has_begun()) {
    json += has_any_ ? ", " : "{";
    append_json_string(json, key_);
    json += ": ";
    has_any_ = true;
  }
  json += value;
  if (status == PythonLiteral::Status::more) return Status::more;
  expect_ = Expect::comma_or_end;
  return status == PythonLiteral::Status::ended_before ? push(c, json) : Status::more;
}

}  // namespace quire
