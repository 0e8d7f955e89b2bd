#pragma once
// The arguments of a call as Python writes them, without the parenthesis that closes them.

#include "text/output/call_constraint.h"

namespace quire {

jinja::Value python_arguments(const CallConstraint::Function& function);

// A property's part of a schema, with the definitions that its names may refer to.
jinja::Value with_definitions(const jinja::Value& property, const jinja::Value& schema);
bool is_required(const jinja::Value& schema, const jinja::Value& key);
std::string place_of(const CallConstraint::Function& function, const std::string& property);

}  // namespace quire
