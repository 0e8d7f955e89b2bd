#pragma once
// From a specification to rules, by its kind.

#include <boost/json.hpp>
#include <string>

#include "engine/structured/compiled_grammar.h"
#include "engine/structured/grammar/rules.h"

namespace quire::structured {

// Returns the root. Throws GrammarFailure. Structural tags know the context's special tokens.
RuleId build_rules(Rules& rules, const GrammarSpec& spec, Meter& meter,
                   const GrammarContext& context);

// Those of them that are also parts of structural tags.
ExprId regex_expression(Rules& rules, const std::string& text);
ExprId choice_expression(Rules& rules, const boost::json::value& list);

}  // namespace quire::structured
