#include "engine/structured/schema/json_style.h"

#include "engine/structured/regex/pattern.h"

namespace quire::structured {

JsonStyle::JsonStyle(Rules& rules, bool any_whitespace, const std::optional<std::string>& pattern)
    : rules_(rules) {
  RegexStore& store = rules.store();
  if (pattern.has_value()) {
    space_ = parse_pattern(store, *pattern, PatternUse::whole, Spelling::plain);
  } else if (any_whitespace) {
    ByteSet blanks;
    for (const char c : {' ', '\t', '\n', '\r'}) blanks.add(static_cast<std::uint8_t>(c));
    space_ = store.repeat(store.bytes(blanks), 0);
  }
  comma_ = store.concat({space_, store.literal(","), space_});
  colon_ = store.concat({space_, store.literal(":"), space_});
  characters_ = store.repeat(chars_regex(store, CharSet::all(), Spelling::json), 0);
  loose_char_ = chars_regex(store, CharSet::all(), Spelling::json_loose);
  number_ = parse_pattern(store, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?",
                          PatternUse::whole, Spelling::plain);
}

RegexId JsonStyle::open(char bracket) const {
  RegexStore& store = rules_.store();
  return store.concat(store.literal(std::string_view(&bracket, 1)), space_);
}

RegexId JsonStyle::close(char bracket) const {
  RegexStore& store = rules_.store();
  return store.concat(space_, store.literal(std::string_view(&bracket, 1)));
}

RegexId JsonStyle::quoted(RegexId content) const {
  RegexStore& store = rules_.store();
  const RegexId quote = store.literal("\"");
  return store.concat({quote, content, quote});
}

RegexId JsonStyle::any_string(std::uint32_t min, std::uint32_t max) const {
  return quoted(rules_.store().repeat(loose_char_, min, max));
}

RegexId JsonStyle::key(std::string_view name) const {
  RegexStore& store = rules_.store();
  return store.concat(store.literal('"' + json_escaped(name) + '"'), colon_);
}

void JsonStyle::make_any() {
  if (value_.has_value()) return;
  RegexStore& store = rules_.store();
  value_ = rules_.add_rule();
  object_ = rules_.add_rule();
  const RuleId array = rules_.add_rule();
  const RegexId words = store.any_of({number_, store.literals({"true", "false", "null"})});
  rules_.define(*value_, rules_.choice({rules_.solid(any_string()), rules_.lexeme(words),
                                        rules_.call(array), rules_.call(*object_)}));
  // opening (closing | member (comma member)* closing)
  const auto list = [&](char open_bracket, char close_bracket, ExprId member) {
    const ExprId more =
        rules_.repeat(rules_.sequence({rules_.lexeme(comma_), member}), 0, kUnbounded);
    const ExprId closing = rules_.lexeme(close(close_bracket));
    const ExprId none = rules_.lexeme(store.literal(std::string_view(&close_bracket, 1)));
    return rules_.sequence({rules_.lexeme(open(open_bracket)),
                            rules_.choice({none, rules_.sequence({member, more, closing})})});
  };
  const ExprId value = rules_.call(*value_);
  rules_.define(array, list('[', ']', value));
  const ExprId key = rules_.solid(store.concat(any_string(), colon_));
  rules_.define(*object_, list('{', '}', rules_.sequence({key, value})));
}

RuleId JsonStyle::any_value() {
  make_any();
  return *value_;
}

RuleId JsonStyle::any_object() {
  make_any();
  return *object_;
}

}  // namespace quire::structured
