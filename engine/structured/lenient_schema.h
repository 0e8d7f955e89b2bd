#pragma once
// Schemas that are enforced as far as they can be: those of functions that do not ask for
// strictness.

#include <boost/json.hpp>
#include <functional>
#include <string>

#include "engine/structured/grammar/rules.h"

namespace quire::structured {

// What `make` makes of the schema, which goes without the keywords that it finds unsupported and
// without those that are null; of a schema that is too costly, or of which too much is unsupported,
// what it makes of `otherwise`. What was left out is logged with `place`, where the schema stands.
// Throws what is wrong for any reader: syntax, or that nothing fits.
ExprId lenient_schema(boost::json::value schema, const boost::json::value& otherwise,
                      const std::string& place,
                      const std::function<ExprId(const boost::json::value&)>& make);

}  // namespace quire::structured
