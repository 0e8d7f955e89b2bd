#pragma once
// GBNF, as llama.cpp and xgrammar read it: root, ::=, |, ( ), * + ? {m,n}, "…", […], ., # comments.

#include <string_view>

#include "engine/structured/grammar/rules.h"

namespace quire::structured {

// Returns the rule `root`. Throws GrammarFailure naming the line.
RuleId parse_ebnf(Rules& rules, std::string_view text);

}  // namespace quire::structured
