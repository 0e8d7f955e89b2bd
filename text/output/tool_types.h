#pragma once
// What types the parameters of a request's tools have, for dialects that write values bare.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace quire {

// A set of JSON types; without any the value is a string.
struct JsonTypes {
  bool string = false, number = false, boolean = false, null = false, object = false, array = false;

  bool only_string() const { return !number && !boolean && !null && !object && !array; }
  static JsonTypes all_but_string() { return {false, true, true, true, true, true}; }
};

// Immutable; any thread.
class ToolTypes {
 public:
  ToolTypes() = default;
  // `tools`: the request's list, as JSON text. What cannot be understood has no types.
  explicit ToolTypes(std::string_view tools);

  JsonTypes of(const std::string& tool, const std::string& parameter) const;

 private:
  std::map<std::string, std::map<std::string, JsonTypes>> tools_;
};

// The text as one of these types, as JSON; a string where it is none of the others.
std::string typed_value(std::string_view text, JsonTypes types);

}  // namespace quire
