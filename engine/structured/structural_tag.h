#pragma once
// Structural tags: free text in which marked parts follow a grammar, as vLLM and xgrammar describe
// it.

#include <boost/json.hpp>

#include "engine/structured/compiled_grammar.h"
#include "engine/structured/grammar/rules.h"

namespace quire::structured {

// {"structures": [{"begin", "schema", "end"}], "triggers": […]}, or {"format": …} made of
// const_string, any_text, json_schema, regex, grammar, choice, structural_tag, sequence, or, tag,
// triggered_tags and tags_with_separator. Beside what its peers know:
//   "text" of any_text and triggered_tags: characters (the default), bytes or tokens, as
//     TagText::Over;
//   "not_beginning", "without" of any_text: texts that it must not begin with, or hold;
//   "string" of any_text: a schema's minLength, maxLength, pattern and format;
//   "place" of a format: the JSON pointer that errors in it begin with, in place of its own;
//   "answer" beside "format": what a format of type "answer" stands for;
//   "thinking" beside "format": see thinking_budget.h;
//   "any_whitespace": false and "whitespace_pattern" beside "format": how all JSON in it is
//     written.
// Marks may be special tokens. Throws GrammarFailure.
ExprId structural_tag_expression(Rules& rules, const boost::json::value& tag, Meter& meter,
                                 const GrammarContext& context);

}  // namespace quire::structured
