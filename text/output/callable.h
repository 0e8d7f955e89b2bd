#pragma once
// Whether a function can be called at all, by the schema of its parameters.

#include "jinja/values/value.h"

namespace quire {

// False: no object fits this schema, so that a function with such parameters cannot be called. What
// only a grammar would find out is let through.
bool admits_object(const jinja::Value& schema);

}  // namespace quire
