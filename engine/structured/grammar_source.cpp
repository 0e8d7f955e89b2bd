#include "engine/structured/grammar_source.h"

#include <boost/json.hpp>

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
  json::parse_options options;
  options.max_depth = 500;
  boost::system::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error == json::error::too_deep) {
    throw GrammarFailure(GrammarErrorKind::limit, "the JSON is nested too deeply");
  }
  if (error) syntax("not JSON: " + error.message());
  return value;
}

ExprId choices(Rules& rules, const json::value& value) {
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

ExprId regex(Rules& rules, const std::string& text) {
  RegexStore& store = rules.store();
  const RegexId id = parse_pattern(store, text, PatternUse::whole, Spelling::plain);
  if (!store.alive(id)) throw GrammarFailure(GrammarErrorKind::unsatisfiable, "no text fits");
  return rules.lexeme(id);
}

}  // namespace

RuleId build_rules(Rules& rules, const GrammarSpec& spec, Meter& meter,
                   const GrammarLimits& limits) {
  if (spec.kind == GrammarSpec::Kind::ebnf) return parse_ebnf(rules, spec.source);
  const RuleId root = rules.add_rule();
  JsonStyle style(rules, spec.any_whitespace, spec.whitespace_pattern);
  switch (spec.kind) {
    case GrammarSpec::Kind::regex: rules.define(root, regex(rules, spec.source)); break;
    case GrammarSpec::Kind::choice:
      rules.define(root, choices(rules, parsed(spec.source)));
      break;
    case GrammarSpec::Kind::json_object: rules.define(root, any_object(rules, style)); break;
    case GrammarSpec::Kind::json_schema: {
      const json::value schema = parsed(spec.source);
      rules.define(root, schema_expression(rules, style, schema, meter, limits));
      break;
    }
    case GrammarSpec::Kind::structural_tag: {
      const json::value tag = parsed(spec.source);
      rules.define(root, structural_tag_expression(rules, style, tag, meter, limits));
      break;
    }
    case GrammarSpec::Kind::ebnf: break;
  }
  return root;
}

}  // namespace quire::structured
