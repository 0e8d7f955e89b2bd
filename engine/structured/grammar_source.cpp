#include "engine/structured/grammar_source.h"

#include <boost/json.hpp>

#include "engine/structured/exact_json.h"
#include "engine/structured/grammar/ebnf.h"
#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/schema_compiler.h"
#include "engine/structured/structural_tag.h"

namespace quire::structured {
namespace {

namespace json = boost::json;

[[noreturn]] void syntax(const std::string& what, std::string pointer = {}) {
  throw GrammarFailure(GrammarErrorKind::syntax, what, std::move(pointer));
}

json::value parsed(const std::string& text) {
  constexpr std::size_t kMaxDepth = 500;
  boost::system::error_code error;
  json::value value = parse_exact(text, kMaxDepth, error);
  if (error == json::error::too_deep) {
    throw GrammarFailure(GrammarErrorKind::limit, "the JSON is nested too deeply");
  }
  if (error) syntax("not JSON: " + error.message());
  return value;
}

}  // namespace

ExprId choice_expression(Rules& rules, const json::value& value) {
  if (!value.is_array()) syntax("choice must be a list of strings");
  if (value.get_array().empty()) syntax("choice must not be empty");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < value.get_array().size(); ++i) {
    const json::value& item = value.get_array()[i];
    if (!item.is_string()) syntax("choice must be a list of strings", "/" + std::to_string(i));
    texts.emplace_back(item.get_string());
  }
  return rules.lexeme(rules.store().literals(std::move(texts)));
}

ExprId regex_expression(Rules& rules, const std::string& text) {
  RegexStore& store = rules.store();
  const RegexId id = parse_pattern(store, text, PatternUse::whole, Spelling::plain);
  if (!store.alive(id)) throw GrammarFailure(GrammarErrorKind::unsatisfiable, "no text fits");
  return rules.lexeme(id);
}

RuleId build_rules(Rules& rules, const GrammarSpec& spec, Meter& meter,
                   const GrammarContext& context) {
  if (spec.kind == GrammarSpec::Kind::ebnf) return parse_ebnf(rules, spec.source);
  const RuleId root = rules.add_rule();
  if (spec.kind == GrammarSpec::Kind::structural_tag) {
    rules.define(root, structural_tag_expression(rules, parsed(spec.source), meter, context));
    return root;
  }
  if (spec.kind == GrammarSpec::Kind::regex || spec.kind == GrammarSpec::Kind::choice) {
    const bool is_regex = spec.kind == GrammarSpec::Kind::regex;
    rules.define(root, is_regex ? regex_expression(rules, spec.source)
                                : choice_expression(rules, parsed(spec.source)));
    return root;
  }
  JsonStyle style(rules, spec.any_whitespace, spec.whitespace_pattern);
  rules.define(root,
               spec.kind == GrammarSpec::Kind::json_object
                   ? any_object(rules, style)
                   : schema_expression(rules, style, parsed(spec.source), meter, context.limits));
  return root;
}

}  // namespace quire::structured
