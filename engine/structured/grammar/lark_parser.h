#pragma once
// Grammars in the notation of Lark, as the tree that GBNF's parser makes, too. Rules, terminals,
// strings and ranges, regular expressions, [ ], ~, aliases and priorities (which say nothing of
// texts), %ignore, and %import from `common`. Terminals are texts of the grammar and not of a
// lexer: what Lark's would cut otherwise (a keyword that is a name, too) may be read either way.

#include <string_view>
#include <vector>

#include "engine/structured/grammar/ebnf_parser.h"

namespace quire::structured {

// A line begins with the name of a rule and a colon, or with %, and none with "::=".
bool looks_like_lark(std::string_view text);

// The rule to begin with is called start. Throws GrammarFailure with the line: templates, %declare,
// %override, %extend and modules other than common are unsupported.
std::vector<EbnfRule> parse_lark(std::string_view text);

}  // namespace quire::structured
