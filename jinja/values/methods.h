#pragma once
// The methods of Python's built-in types.

#include <string_view>

#include "jinja/values/attributes.h"

namespace quire::jinja {

// Each null where the type has no such method that templates may call.
Method find_text_method(std::string_view name);
Method find_text_search_method(std::string_view name);
Method find_text_case_method(std::string_view name);
Method find_list_method(std::string_view name);
Method find_tuple_method(std::string_view name);
Method find_dict_method(std::string_view name);
Method find_integer_method(std::string_view name);
Method find_real_method(std::string_view name);
Method find_object_method(const Object& object, std::string_view name);  // of ranges and views

// islower() and isupper(): some wanted characters and none of the other case.
bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t));

// real, imag, numerator, denominator; missing for other names.
Value number_attribute(const Value& number, std::string_view name);

// dict.items() and the like.
Value dict_items(const Value& dict);

}  // namespace quire::jinja
