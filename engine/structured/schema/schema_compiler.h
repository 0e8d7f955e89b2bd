#pragma once
// JSON Schema to rules.

#include <boost/json.hpp>

#include "engine/structured/grammar/rules.h"
#include "engine/structured/schema/json_style.h"

namespace quire::structured {

// The values that fit the schema, or of these the objects, written in the style. Throws
// GrammarFailure with the JSON pointer of the place in the schema.
ExprId schema_expression(Rules& rules, JsonStyle& style, const boost::json::value& schema,
                         Meter& meter, const GrammarLimits& limits, bool only_objects = false);

}  // namespace quire::structured
