#include "text/output/object_reader.h"

#include <algorithm>

#include "base/error.h"
#include "jinja/values/value.h"
#include "text/output/marker_matcher.h"

namespace quire {
namespace {

constexpr std::size_t kMaxName = 1024;  // bytes, escaped

std::optional<std::string> unquoted(std::string_view json) {
  try {
    return jinja::parse_json(json).string();
  } catch (const Failure&) {
    return {};
  }
}

// What calls of some models have beside name and arguments.
bool is_usual(std::string_view key) {
  return key == "type" || key == "id" || key == "tool_call_id" || key == "call_id";
}

}  // namespace

ObjectReader::Status ObjectReader::push(char c) {
  if (expect_ == Expect::value) return in_value(c);
  if (!in_outer(c)) return Status::broken;
  return expect_ == Expect::nothing ? Status::done : Status::more;
}

bool ObjectReader::in_outer(char c) {
  if (expect_ == Expect::in_key) {
    text_ += c;
    const JsonScanner::Status status = scanner_.push(c);
    if (status == JsonScanner::Status::done) return end_key();
    return status == JsonScanner::Status::more && text_.size() <= kMaxName;
  }
  if (is_space(c)) return true;
  switch (expect_) {
    case Expect::object:
      expect_ = Expect::key_or_end;
      return c == '{';
    case Expect::key_or_end:
    case Expect::comma_or_end:
      if (c == '}') return finish();
      if (expect_ == Expect::comma_or_end) {
        expect_ = Expect::key;
        return c == ',';
      }
      [[fallthrough]];
    case Expect::key:
      expect_ = Expect::in_key;
      text_ = c;
      scanner_ = JsonScanner();
      return c == '"' && scanner_.push(c) == JsonScanner::Status::more;
    case Expect::colon:
      expect_ = Expect::value;
      scanner_ = JsonScanner();
      first_ = 0;
      text_.clear();
      return c == ':';
    default:
      return false;
  }
}

// Keys that mean something are written without escapes.
bool ObjectReader::end_key() {
  const std::string_view key = std::string_view(text_).substr(1, text_.size() - 2);
  const auto& names = keys_.arguments;
  expect_ = Expect::colon;
  if (key == keys_.name) {
    role_ = Role::name;
    return !name_;
  }
  if (std::find(names.begin(), names.end(), key) != names.end()) {
    role_ = Role::arguments;
    return !seen_arguments_;
  }
  role_ = Role::other;
  has_unknown_ = has_unknown_ || !is_usual(key);
  return !only_calls_ || is_usual(key);
}

ObjectReader::Status ObjectReader::in_value(char c) {
  const JsonScanner::Status status = scanner_.push(c);
  if (status == JsonScanner::Status::broken) return Status::broken;
  if (first_ == 0 && !is_space(c)) {
    first_ = c;
    if (role_ == Role::name && c != '"') return Status::broken;
    if (role_ == Role::arguments) has_arguments_ = c == '{';
  }
  const bool own = status != JsonScanner::Status::ended_before;
  if (own && first_ != 0 && role_ == Role::arguments && has_arguments_) {
    arguments_ += c;
  } else if (own && first_ != 0 && role_ != Role::other) {
    text_ += c;
    if (role_ == Role::name && text_.size() > kMaxName) return Status::broken;
  }
  if (status == JsonScanner::Status::more) return Status::more;
  if (!end_value()) return Status::broken;
  expect_ = Expect::comma_or_end;
  return own ? Status::more : push(c);
}

bool ObjectReader::end_value() {
  if (role_ == Role::arguments) return end_arguments();
  if (role_ == Role::name) {
    name_ = unquoted(text_);
    return name_ && !name_->empty();
  }
  return true;
}

// Instead of an object some models write its text as a string, or null.
bool ObjectReader::end_arguments() {
  seen_arguments_ = true;
  if (has_arguments_) return true;
  if (first_ == '"') {
    const auto text = unquoted(text_);
    if (!text || !without_space(*text).starts_with('{') || !JsonScanner::accepts(*text)) {
      return false;
    }
    arguments_ = without_space(*text);
  } else if (text_ == "null") {
    arguments_ = "{}";
  } else {
    return false;
  }
  has_arguments_ = true;
  return true;
}

bool ObjectReader::finish() {
  expect_ = Expect::nothing;
  // Without arguments it takes none, unless they stand under another name.
  if (!name_ || (!has_arguments_ && (only_calls_ || has_unknown_))) return false;
  if (!has_arguments_) arguments_ = "{}";
  has_arguments_ = true;
  return true;
}

}  // namespace quire
