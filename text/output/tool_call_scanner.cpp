#include "text/output/tool_call_scanner.h"

#include <cctype>

#include "base/error.h"
#include "jinja/values/value.h"

namespace quire {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Exactly one JSON value?
std::optional<jinja::Value> parsed(std::string_view json) {
  try {
    return jinja::parse_json(json);
  } catch (const Failure&) {
    return {};
  }
}

bool is_number(std::string_view text) {
  return text.find_first_not_of("-+0123456789.eE") == text.npos && parsed(text).has_value();
}

}  // namespace

ToolCallScanner::Status ToolCallScanner::push(char c) {
  if (!accept(c)) return Status::broken;
  text_ += c;
  if (escape_ == 0 && !in_text_ && !in_word_ && open_.empty() && c == '}') return Status::complete;
  return Status::incomplete;
}

bool ToolCallScanner::accept(char c) {
  if (in_text_) return accept_in_text(c);
  if (in_word_) {
    if (continues_word(c)) return true;
    if (!end_word()) return false;
  }
  return is_space(c) || accept_structure(c);
}

bool ToolCallScanner::accept_in_text(char c) {
  if (escape_ < 0) {
    escape_ = c == 'u' ? 4 : 0;
    return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
  }
  if (escape_ > 0) {
    --escape_;
    return std::isxdigit(static_cast<unsigned char>(c)) != 0;
  }
  if (c == '\\') {
    escape_ = -1;
  } else if (c == '"') {
    in_text_ = false;
    if (text_is_key_) {
      if (open_.size() == 1 && !begin_member()) return false;
      expect_ = Expect::colon;
    } else {
      end_value();
    }
  }
  return static_cast<unsigned char>(c) >= 0x20;
}

// The key of the outermost object that ends here; false where it has been there before.
bool ToolCallScanner::begin_member() {
  const std::string_view key = std::string_view(text_).substr(token_begin_);
  member_ = key == "\"name" ? &name_ : key == "\"arguments" ? &arguments_ : nullptr;
  return member_ == nullptr || !member_->seen;
}

bool ToolCallScanner::accept_structure(char c) {
  switch (expect_) {
    case Expect::object:
      open_ = "{";
      expect_ = Expect::key_or_end;
      return c == '{';
    case Expect::key_or_end:
      if (c == '}') return close(c);
      [[fallthrough]];
    case Expect::key:
      in_text_ = text_is_key_ = true;
      token_begin_ = text_.size();
      return c == '"';
    case Expect::colon:
      expect_ = Expect::value;
      return c == ':';
    case Expect::value_or_end:
      if (c == ']') return close(c);
      [[fallthrough]];
    case Expect::value:
      return begin_value(c);
    case Expect::comma_or_end:
      if (c != ',') return close(c);
      expect_ = open_.back() == '{' ? Expect::key : Expect::value;
      return true;
  }
  return false;
}

void ToolCallScanner::begin_member_value() {
  if (open_.size() != 1 || member_ == nullptr) return;
  *member_ = {text_.size(), 0, true};
}

bool ToolCallScanner::begin_value(char c) {
  begin_member_value();
  token_begin_ = text_.size();
  if (c == '{' || c == '[') {
    open_ += c;
    expect_ = c == '{' ? Expect::key_or_end : Expect::value_or_end;
    return open_.size() <= kMaxDepth;
  }
  if (c == '"') {
    in_text_ = true;
    text_is_key_ = false;
    return true;
  }
  in_word_ = true;
  return continues_word(c);
}

bool ToolCallScanner::continues_word(char c) const {
  const std::string word = text_.substr(token_begin_) + c;
  for (std::string_view literal : {"true", "false", "null"}) {
    if (literal.starts_with(word)) return true;
  }
  return word.find_first_not_of("-+0123456789.eE") == word.npos && word.size() < 400;
}

bool ToolCallScanner::end_word() {
  const std::string word = text_.substr(token_begin_);
  in_word_ = false;
  end_value();
  return word == "true" || word == "false" || word == "null" || is_number(word);
}

// Called before the value's last character is added, except for a word, which the next character
// ends.
void ToolCallScanner::end_value() {
  expect_ = Expect::comma_or_end;
  if (open_.size() == 1 && member_ != nullptr) {
    const bool is_word = text_.substr(member_->begin, 1).find_first_of("\"{[") == std::string::npos;
    member_->end = text_.size() + (is_word ? 0 : 1);
    member_ = nullptr;
  }
}

bool ToolCallScanner::close(char c) {
  if (c != (open_.back() == '{' ? '}' : ']')) return false;
  open_.pop_back();
  if (!open_.empty()) end_value();
  return true;
}

std::optional<std::string> ToolCallScanner::name() const {
  if (!name_.seen || name_.end == 0) return {};
  const auto value = parsed(name_.in(text_));
  if (!value || !value->is_string() || value->string().empty()) return {};
  return value->string();
}

std::string_view ToolCallScanner::arguments_so_far() const {
  if (!arguments_.seen) return {};
  const std::string_view text = arguments_.in(text_);
  return text.starts_with('{') ? text : std::string_view();
}

std::string ToolCallScanner::arguments() const {
  if (!arguments_.seen) return "{}";
  const std::string_view text = arguments_.in(text_);
  if (text == "null") return "{}";
  if (!text.starts_with('"')) return std::string(text);
  const auto value = parsed(text);
  return value && value->is_string() ? value->string() : std::string(text);
}

}  // namespace quire
