#pragma once
// How JSON is written: white space, punctuation, strings, and the rule for any value.

#include <optional>
#include <string>
#include <string_view>

#include "engine/structured/grammar/rules.h"
#include "engine/structured/regex/char_set.h"

namespace quire::structured {

class JsonStyle {
 public:
  // White space may stand between tokens: any, none, or what the pattern matches.
  JsonStyle(Rules& rules, bool any_whitespace, const std::optional<std::string>& pattern);

  RegexId space() const { return space_; }
  RegexId comma() const { return comma_; }
  RegexId colon() const { return colon_; }
  RegexId open(char bracket) const;   // and the white space after it
  RegexId close(char bracket) const;  // and the white space before it
  // Any characters of a string, as constraints are written against (Spelling::json), unquoted.
  RegexId characters() const { return characters_; }
  RegexId quoted(RegexId content) const;
  // A string without further constraints but its length, in characters.
  RegexId any_string(std::uint32_t min = 0, std::uint32_t max = kUnbounded) const;
  RegexId key(std::string_view name) const;  // the key, quoted, and the colon
  RegexId any_number() const { return number_; }

  RuleId any_value();
  RuleId any_object();

 private:
  void make_any();

  Rules& rules_;
  RegexId space_ = kEmpty, comma_, colon_, characters_, loose_char_, number_;
  std::optional<RuleId> value_, object_;
};

// The root of json_object.
inline ExprId any_object(Rules& rules, JsonStyle& style) { return rules.call(style.any_object()); }

}  // namespace quire::structured
