#pragma once
// "{} {name}".format(…), with the sandbox's view of attributes and items.

#include "jinja/values/object.h"
#include "jinja/values/value.h"

namespace quire::jinja {

Value brace_format(Evaluation& evaluation, const Value& format, const Arguments& arguments);

}  // namespace quire::jinja
