#pragma once
// What a JSON pointer finds in a reply, minified; "absent" where there is nothing.

#include <simdjson.h>

#include <string>
#include <string_view>

namespace quire::test {

inline std::string pointer(const std::string& json, std::string_view path) {
  simdjson::dom::parser parser;
  simdjson::dom::element element;
  if (parser.parse(json).at_pointer(path).get(element)) return "absent";
  return simdjson::minify(element);
}

}  // namespace quire::test
