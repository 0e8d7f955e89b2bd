#include "jinja/syntax/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "jinja/error.h"
#include "jinja/syntax/literals.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Type = Token::Type;

// \r\n and \r become \n; one newline at the end goes.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      i += i + 1 < source.size() && source[i + 1] == '\n';
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_root();
    add(Type::end, "");
    return std::move(tokens_);
  }

 private:
  void lex_root();
  void lex_comment();
  bool lex_raw(std::string_view data);
  void lex_tag(bool is_block);
  void lex_token();
  bool lex_operator();
  void lex_quoted();
  bool end_of_tag(bool is_block);

  // The sign after an opening delimiter: '-', '+' or 0.
  char sign_at(std::size_t position) const {
    const char c = position < source_.size() ? source_[position] : 0;
    return c == '-' || c == '+' ? c : 0;
  }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool starts(std::string_view text) const { return rest().starts_with(text); }
  void move_to(std::size_t position) {
    line_ += int(std::count(source_.begin() + std::ptrdiff_t(at_),
                            source_.begin() + std::ptrdiff_t(position), '\n'));
    at_ = position;
  }
  std::size_t after_space(std::size_t position) const {
    const std::string_view text = std::string_view(source_).substr(position);
    return position + (text.size() - unicode::strip(text, true, false).size());
  }
  // Past a closing delimiter's end and what it swallows.
  std::size_t after_close(std::size_t close_end, char sign) const {
    if (sign == '-') return after_space(close_end);
    return close_end + (sign == 0 && close_end < source_.size() && source_[close_end] == '\n');
  }
  void add(Type type, std::string text) { tokens_.push_back({type, std::move(text), {}, line_}); }
  void add_data(std::string_view data, char sign, bool is_variable);

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text before at_ ended a line
  std::string open_brackets_;
  std::vector<Token> tokens_;
};

// Text before a tag, without what the tag's sign or lstrip_blocks takes from its end.
void Lexer::add_data(std::string_view data, char sign, bool is_variable) {
  if (sign == '-') {
    data = unicode::strip(data, false, true);
  } else if (sign != '+' && !is_variable) {
    const std::size_t line_begin = data.rfind('\n') + 1;
    const bool at_line_start = line_begin > 0 || line_starting_;
    if (at_line_start && unicode::strip(data.substr(line_begin), true, true).empty())
      data = data.substr(0, line_begin);
  }
  if (!data.empty()) add(Type::data, std::string(data));
}

void Lexer::lex_root() {
  std::size_t open = at_;
  for (;; ++open) {
    open = source_.find('{', open);
    if (open == source_.npos || open + 1 >= source_.size()) break;
    const char second = source_[open + 1];
    if (second == '{' || second == '%' || second == '#') break;
  }
  if (open == source_.npos || open + 1 >= source_.size()) {
    add(Type::data, std::string(rest()));
    return move_to(source_.size());
  }
  const std::string_view data = std::string_view(source_).substr(at_, open - at_);
  const char sign = sign_at(open + 2);
  const char second = source_[open + 1];
  if (second == '%') {
    const std::size_t start = at_;
    at_ = open;
    if (lex_raw(std::string_view(source_).substr(start, open - start))) return;
    at_ = start;
  }
  add_data(data, sign, second == '{');
  move_to(open + 2 + (sign != 0));
  line_starting_ = false;
  if (second == '#') return lex_comment();
  add(second == '{' ? Type::variable_begin : Type::block_begin, "");
  lex_tag(second == '%');
}

void Lexer::lex_comment() {
  if (at_ == source_.size()) return;
  const std::size_t close = source_.find("#}", at_);
  if (close == source_.npos) fail(ErrorKind::syntax, "Missing end of comment tag", line_);
  const char before = close > at_ ? source_[close - 1] : 0;
  const std::size_t end = after_close(close + 2, before == '-' || before == '+' ? before : 0);
  move_to(end);
  line_starting_ = source_[end - 1] == '\n';
}

// {% raw %} … {% endraw %}, where at_ stands on such a thing; `data` is the text before it.
bool Lexer::lex_raw(std::string_view data) {
  const char sign = sign_at(at_ + 2);
  std::size_t position = after_space(at_ + 2 + (sign != 0));
  if (source_.compare(position, 3, "raw") != 0) return false;
  position = after_space(position + 3);
  const bool trims = source_.compare(position, 3, "-%}") == 0;
  if (!trims && source_.compare(position, 2, "%}") != 0) return false;
  add_data(data, sign, false);
  line_ += int(std::count(data.begin(), data.end(), '\n'));
  move_to(trims ? after_space(position + 3) : position + 2);
  line_starting_ = source_[at_ - 1] == '\n';

  for (std::size_t open = source_.find("{%", at_); open != source_.npos;
       open = source_.find("{%", open + 1)) {
    const char end_sign = sign_at(open + 2);
    std::size_t end = after_space(open + 2 + (end_sign != 0));
    if (source_.compare(end, 6, "endraw") != 0) continue;
    end = after_space(end + 6);
    const char close_sign = sign_at(end);
    end += close_sign != 0;
    if (source_.compare(end, 2, "%}") != 0) continue;
    add_data(std::string_view(source_).substr(at_, open - at_), end_sign, false);
    move_to(after_close(end + 2, close_sign));
    line_starting_ = source_[at_ - 1] == '\n';
    return true;
  }
  if (at_ == source_.size()) return true;
  fail(ErrorKind::syntax, "Missing end of raw directive", line_);
}

// Whether the tag ends here; if so it is left behind.
bool Lexer::end_of_tag(bool is_block) {
  if (!open_brackets_.empty()) return false;
  const std::string_view close = is_block ? "%}" : "}}";
  const char sign = sign_at(at_);
  if (sign == '+' && !is_block) return false;
  if (!std::string_view(source_).substr(at_ + (sign != 0)).starts_with(close)) return false;
  add(is_block ? Type::block_end : Type::variable_end, "");
  const std::size_t close_end = at_ + (sign != 0) + 2;
  move_to(is_block || sign == '-' ? after_close(close_end, sign) : close_end);
  line_starting_ = source_[at_ - 1] == '\n';
  return true;
}

void Lexer::lex_tag(bool is_block) {
  for (;;) {
    if (at_ < source_.size() && end_of_tag(is_block)) return;
    const std::size_t word = after_space(at_);
    if (word > at_) {
      move_to(word);
      continue;
    }
    if (at_ == source_.size()) return;
    lex_token();
  }
}

void Lexer::lex_token() {
  if (const auto number = read_number(rest(), at_ > 0 && source_[at_ - 1] == '.')) {
    add(Type::number, std::string(rest().substr(0, number->length)));
    tokens_.back().number = number->value;
    return move_to(at_ + number->length);
  }
  std::size_t end = at_;
  while (end < source_.size()) {
    std::size_t after = end;
    const char32_t c = unicode::next(source_, after);
    if (!unicode::is_word(c) &&
        !(c >= 0x80 && unicode::is_identifier("_" + source_.substr(end, after - end))))
      break;
    end = after;
  }
  if (end > at_) {
    const std::string name = source_.substr(at_, end - at_);
    if (!unicode::is_identifier(name))
      fail(ErrorKind::syntax, "Invalid character in identifier", line_);
    add(Type::name, name);
    return move_to(end);
  }
  if (source_[at_] == '\'' || source_[at_] == '"') return lex_quoted();
  if (lex_operator()) return;
  std::size_t after = at_;
  unicode::next(source_, after);
  fail(ErrorKind::syntax,
       "unexpected char '" + source_.substr(at_, after - at_) + "' at " +
           std::to_string(unicode::count(std::string_view(source_).substr(0, at_))),
       line_);
}

void Lexer::lex_quoted() {
  const char quote = source_[at_];
  std::size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) {
    fail(ErrorKind::syntax, std::string("unexpected char ") + quote + ": a text that does not end",
         line_);
  }
  add(Type::text, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
  move_to(end + 1);
}

bool Lexer::lex_operator() {
  static constexpr std::array<std::string_view, 26> kOperators = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  const auto* found =
      std::find_if(kOperators.begin(), kOperators.end(), [&](auto op) { return starts(op); });
  if (found == kOperators.end()) return false;
  const char c = (*found)[0];
  if (c == '{') open_brackets_.push_back('}');
  if (c == '(') open_brackets_.push_back(')');
  if (c == '[') open_brackets_.push_back(']');
  if (c == '}' || c == ')' || c == ']') {
    if (open_brackets_.empty())
      fail(ErrorKind::syntax, std::string("unexpected '") + c + "'", line_);
    const char expected = open_brackets_.back();
    open_brackets_.pop_back();
    if (expected != c) {
      fail(ErrorKind::syntax, std::string("unexpected '") + c + "', expected '" + expected + "'",
           line_);
    }
  }
  add(Type::op, std::string(*found));
  move_to(at_ + found->size());
  return true;
}

}  // namespace

std::string describe(const Token& token) {
  switch (token.type) {
    case Type::data:
      return "template data / text";
    case Type::variable_begin:
      return "begin of print statement";
    case Type::variable_end:
      return "end of print statement";
    case Type::block_begin:
      return "begin of statement block";
    case Type::block_end:
      return "end of statement block";
    case Type::text:
      return "string";
    case Type::number:
      return token.number.is(Value::Kind::real) ? "float" : "integer";
    case Type::end:
      return "end of template";
    case Type::name:
    case Type::op:
      return token.text;
  }
  return "";
}

std::vector<Token> tokenize(std::string_view source) {
  if (!unicode::valid(source)) fail(ErrorKind::syntax, "the template is not valid UTF-8");
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace quire::jinja
