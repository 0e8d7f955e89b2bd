#pragma once
// Structural tags: free text in which marked parts follow a grammar, as vLLM and xgrammar describe it.

#include <boost/json.hpp>

#include "engine/structured/grammar/rules.h"
#include "engine/structured/schema/json_style.h"

namespace quire::structured {

// {"structures": [{"begin", "schema", "end"}], "triggers": […]}, or {"format": …} made of const_string,
// any_text, json_schema, regex, sequence, or, tag, triggered_tags and tags_with_separator.
ExprId structural_tag_expression(Rules& rules, JsonStyle& style, const boost::json::value& tag,
                                 Meter& meter, const GrammarLimits& limits);

}  // namespace quire::structured
