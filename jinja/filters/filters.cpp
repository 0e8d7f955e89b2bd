#include "jinja/filters/filters.h"

#include <array>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/filter_functions.h"
#include "jinja/syntax/literals.h"
#include "jinja/values/attributes.h"
#include "jinja/values/repr.h"
#include "jinja/values/text_split.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {

FilterFunction find_filter(std::string_view name) {
  for (const FilterTable& table : {text_filters(), wrap_filters(), number_filters(),
                                   sequence_filters(), order_filters(), lazy_filters()}) {
    for (std::size_t i = 0; i < table.count; ++i) {
      if (table.filters[i].name == name) return table.filters[i].function;
    }
  }
  return nullptr;
}

FilterFunction require_filter(const Value& name) {
  const FilterFunction filter = name.is_string() ? find_filter(name.string()) : nullptr;
  if (filter == nullptr) fail(ErrorKind::runtime, "No filter named " + repr(name) + ".");
  return filter;
}

Value soft_text(const Value& value) { return value.is_string() ? value : Value(to_text(value)); }

Value lower_if_text(const Value& value) {
  return value.is_string() ? Value(unicode::lower(value.string())) : value;
}

namespace {

List attribute_parts(const Value& attribute) {
  if (!is_given(attribute) || attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  List parts;
  for (std::string_view part : split(attribute.string(), ".", -1)) {
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    parts.push_back(is_number ? *parse_integer(part, 10) : Value(part));
  }
  return parts;
}

}  // namespace

Getter attribute_getter(Evaluation& evaluation, const Value& attribute,
                        const Value& default_value) {
  return [&evaluation, parts = attribute_parts(attribute), default_value](const Value& item) {
    Value value = item;
    for (const Value& part : parts) {
      evaluation.step();
      value = get_item(evaluation, value, part);
      if (value.is_undefined() && is_given(default_value) && !default_value.is_none())
        value = default_value;
    }
    return value;
  };
}

}  // namespace quire::jinja
