#include "engine/structured/bare_string.h"

#include <optional>
#include <string>
#include <vector>

#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/formats.h"
#include "engine/structured/tag_members.h"

namespace quire::structured {

namespace json = boost::json;

ExprId bare_string(Rules& rules, const json::object& schema, RegexId text) {
  RegexStore& store = rules.store();
  std::vector<RegexId> parts = {text};
  const auto length = [&](const char* key, std::uint32_t otherwise) {
    const auto* value = schema.if_contains(key);
    if (value == nullptr) return otherwise;
    boost::system::error_code error;
    const auto number = value->to_number<std::uint32_t>(error);
    if (error)
      tag_fault("must be a whole number", std::string("/") + key, GrammarErrorKind::syntax);
    return number;
  };
  const std::uint32_t least = length("minLength", 0), most = length("maxLength", kUnbounded);
  const RegexId one = chars_regex(store, CharSet::all(), Spelling::plain);
  if (least > 0 || most != kUnbounded) {
    parts.push_back(least > most ? kNothing : store.repeat(one, least, most));
  }
  std::optional<RegexId> pattern;
  if (const auto* given = schema.if_contains("pattern")) {
    if (!given->is_string()) tag_fault("must be a string", "/pattern", GrammarErrorKind::syntax);
    try {
      pattern = parse_pattern(store, std::string(given->get_string()), PatternUse::search,
                              Spelling::plain);
      parts.push_back(*pattern);
    } catch (const GrammarFailure& failure) {
      throw GrammarFailure(failure.kind(), failure.what(), "/pattern");
    }
  }
  if (const auto* format = schema.if_contains("format")) {
    if (!format->is_string()) tag_fault("must be a string", "/format", GrammarErrorKind::syntax);
    const std::string name(format->get_string());
    const auto known = format_regex(store, name, Spelling::plain);
    if (!known && !pattern) tag_fault("is not known", "/format", GrammarErrorKind::unsupported);
    if (known && !(pattern && is_local_time(store, name, *known, *pattern)))
      parts.push_back(*known);
  }
  const RegexId all = store.all_of(std::move(parts));
  if (!store.alive(all)) tag_fault("no text fits", "", GrammarErrorKind::unsatisfiable);
  return rules.solid(all);
}

}  // namespace quire::structured
