#pragma once
// GBNF, as llama.cpp and xgrammar read it: root, ::=, |, ( ), * + ? {m,n}, "…", […], ., # comments.
// What looks like Lark's notation is read as that (lark_parser.h).

#include <string_view>

#include "engine/structured/grammar/rules.h"

namespace quire::structured {

// Returns the rule `root`, of Lark `start`. Throws GrammarFailure naming the line.
RuleId parse_ebnf(Rules& rules, std::string_view text);

}  // namespace quire::structured
