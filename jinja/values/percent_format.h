#pragma once
// text % values, as Python formats it.

#include "jinja/values/value.h"

namespace quire::jinja {

class Evaluation;

Value percent_format(Evaluation& evaluation, const Value& format, const Value& values);

}  // namespace quire::jinja
