#pragma once
// Strings of a schema that stand without quotes, as some families write the parameters of calls.

#include <boost/json.hpp>

#include "engine/structured/grammar/rules.h"

namespace quire::structured {

// minLength, maxLength, pattern and format of the schema, for a text that is also one of `text`.
// Throws GrammarFailure with the place in the schema.
ExprId bare_string(Rules& rules, const boost::json::object& schema, RegexId text);

}  // namespace quire::structured
