#pragma once
// From a specification to rules, by its kind.

#include "engine/structured/compiled_grammar.h"
#include "engine/structured/grammar/rules.h"

namespace quire::structured {

// Returns the root. Throws GrammarFailure.
RuleId build_rules(Rules& rules, const GrammarSpec& spec, Meter& meter,
                   const GrammarLimits& limits);

}  // namespace quire::structured
