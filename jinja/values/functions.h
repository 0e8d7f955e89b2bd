#pragma once
// Functions as values, and Python's way of matching arguments to parameters.

#include <functional>
#include <initializer_list>
#include <string_view>

#include "jinja/values/object.h"

namespace quire::jinja {

using FunctionBody = std::function<Value(Evaluation&, Arguments&)>;
Value make_function(std::string_view name, FunctionBody body);

// The arguments in the order of `parameters`, missing where not given. Fails (type) where one is
// unknown, given twice, beyond the last, or missing among the first `num_required`.
List bind(std::string_view function, Arguments& arguments,
          std::initializer_list<std::string_view> parameters, std::size_t num_required);
// For functions that take no names: between `at_least` and `at_most` arguments.
const List& positional(std::string_view function, const Arguments& arguments, std::size_t at_least,
                       std::size_t at_most);

// Iterators that can be walked once.
Value make_generator(std::unique_ptr<Iterator> items, const Value& source,
                     std::string_view type_name = "generator");

}  // namespace quire::jinja
