#include "engine/structured/schema/schema_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/decimal.h"
#include "engine/structured/exact_json.h"
#include "engine/structured/schema/check_value.h"
#include "engine/structured/schema/schema.h"

namespace quire::structured {

namespace {

// A key of the client's in a sentence: short, and without what would end or garble it.
std::string shown(std::string_view key) {
  std::string text(key.substr(0, 100));
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 127; }, '?');
  return text;
}

}  // namespace

void schema_syntax(const std::string& pointer, const std::string& what) {
  throw GrammarFailure(GrammarErrorKind::syntax, what, pointer);
}

void schema_syntax(const std::string& pointer, std::string_view key, std::string_view what) {
  throw GrammarFailure(GrammarErrorKind::syntax, fmt::format("\"{}\" {}", shown(key), what),
                       pointer + '/' + escaped_pointer(key));
}

void schema_unsupported(const std::string& pointer, std::string_view key, std::string_view what) {
  throw GrammarFailure(GrammarErrorKind::unsupported, fmt::format("\"{}\" {}", shown(key), what),
                       pointer + '/' + escaped_pointer(key));
}

std::string string_of(const std::string& pointer, std::string_view key, const json::value& value) {
  if (!value.is_string()) schema_syntax(pointer, key, "must be a string");
  return std::string(value.get_string());
}

std::vector<std::string> strings_of(const std::string& pointer, std::string_view key,
                                    const json::value& value) {
  if (!value.is_array()) schema_syntax(pointer, key, "must be a list of strings");
  std::vector<std::string> result;
  for (const json::value& item : value.get_array()) {
    result.push_back(string_of(pointer, key, item));
  }
  return result;
}

namespace {

constexpr std::string_view kLost =
    "has a number that neither 64 bits nor a double hold to its last digit";

}  // namespace

std::string number_of(const std::string& pointer, std::string_view key, const json::value& value) {
  if (!value.is_number()) schema_syntax(pointer, key, "must be a number");
  if (!is_exact_number(value)) schema_unsupported(pointer, key, kLost);
  return decimal_of(value);
}

std::uint32_t count_of(const std::string& pointer, std::string_view key, const json::value& value) {
  if (value.is_number() && !is_exact_number(value)) schema_unsupported(pointer, key, kLost);
  double number = -1;
  if (value.is_int64()) number = static_cast<double>(value.get_int64());
  if (value.is_uint64()) number = static_cast<double>(value.get_uint64());
  if (value.is_double()) number = value.get_double();
  if (number < 0 || number != std::floor(number)) {
    schema_syntax(pointer, key, "must be an integer of at least 0");
  }
  constexpr double kMost = 0x7fffffff;
  return static_cast<std::uint32_t>(std::min(number, kMost));
}

bool bool_of(const std::string& pointer, std::string_view key, const json::value& value) {
  if (!value.is_bool()) schema_syntax(pointer, key, "must be true or false");
  return value.get_bool();
}

namespace {

std::uint8_t type_of(const std::string& pointer, const json::value& value) {
  const std::string name = string_of(pointer, "type", value);
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kInteger;
  if (name == "number") return kNumber;
  if (name == "string") return kString;
  if (name == "array") return kArray;
  if (name == "object") return kObject;
  schema_syntax(pointer, "type", fmt::format("has no type \"{}\"", name));
}

std::uint8_t types_of(const std::string& pointer, const json::value& value) {
  if (!value.is_array()) return type_of(pointer, value);
  if (value.get_array().empty()) schema_syntax(pointer, "type", "must not be empty");
  std::uint8_t types = 0;
  for (const json::value& item : value.get_array()) types |= type_of(pointer, item);
  return types;
}

}  // namespace

void SchemaDocument::read_number_bound(Schema& schema, std::string_view key,
                                       const json::value& value, const json::object& object) {
  const bool lower = key == "minimum" || key == "exclusiveMinimum";
  const bool exclusive = key[0] == 'e';
  if (exclusive && value.is_bool()) {  // draft 4: about its neighbour
    const char* neighbour = lower ? "minimum" : "maximum";
    if (!object.contains(neighbour)) {
      schema_syntax(schema.pointer, key, fmt::format("needs {} beside it", neighbour));
    }
    if (value.get_bool()) (lower ? schema.exclusive_minimum : schema.exclusive_maximum) = true;
    return;
  }
  const std::string decimal = number_of(schema.pointer, key, value);
  auto& bound = lower ? schema.minimum : schema.maximum;
  auto& strict = lower ? schema.exclusive_minimum : schema.exclusive_maximum;
  // Both kinds may stand together: the tighter one holds.
  if (bound.has_value()) {
    const auto old = Decimal::of(*bound), now = Decimal::of(decimal);
    const bool tighter = lower ? now > old : now < old;
    if (!tighter) {
      if (now == old && exclusive) strict = true;
      return;
    }
    strict = false;
  }
  bound = decimal;
  if (exclusive) strict = true;
}

bool SchemaDocument::read_validation(Schema& schema, std::string_view key, const json::value& value,
                                     const json::object& object) {
  const std::string& at = schema.pointer;
  const auto count = [&](std::optional<std::uint32_t>& out) {
    out = count_of(at, key, value);
    return true;
  };
  if (key == "minLength") return count(schema.min_length);
  if (key == "maxLength") return count(schema.max_length);
  if (key == "minItems") return count(schema.min_items);
  if (key == "maxItems") return count(schema.max_items);
  if (key == "minContains") return count(schema.min_contains);
  if (key == "maxContains") return count(schema.max_contains);
  if (key == "minProperties") return count(schema.min_properties);
  if (key == "maxProperties") return count(schema.max_properties);
  if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" ||
      key == "exclusiveMaximum") {
    read_number_bound(schema, key, value, object);
  } else if (key == "multipleOf") {
    if (!value.is_number() || value.to_number<double>() <= 0) {
      schema_syntax(at, key, "must be a number above 0");
    }
    schema.multiple_of = number_of(at, key, value);
  } else if (key == "type") {
    schema.types &= types_of(at, value);
  } else if (key == "enum") {
    if (!value.is_array()) schema_syntax(at, key, "must be a list of values");
    schema.values.emplace(value.get_array().begin(), value.get_array().end());
    schema.values_keyword = key;
    if (has_lost_number(value)) schema_unsupported(at, key, kLost);
    if (const auto* only = object.if_contains("const")) {
      std::erase_if(*schema.values,
                    [&](const json::value& item) { return !same_value(item, *only); });
    }
  } else if (key == "const") {
    if (has_lost_number(value)) schema_unsupported(at, key, kLost);
    if (!object.contains("enum")) {
      schema.values = std::vector<json::value>{value};
      schema.values_keyword = key;
    }
  } else if (key == "pattern") {
    schema.pattern = string_of(at, key, value);
  } else if (key == "format") {
    schema.format = string_of(at, key, value);
  } else if (key == "contentEncoding") {
    schema.content_encoding = string_of(at, key, value);
  } else if (key == "required") {
    // Draft 3 had a boolean here; nobody else does.
    schema.required = strings_of(at, key, value);
  } else if (key == "uniqueItems") {
    schema.unique_items = bool_of(at, key, value);
  } else if (key == "dependentRequired") {
    if (!value.is_object()) schema_syntax(at, key, "must be an object of lists");
    for (const auto& [name, item] : value.get_object()) {
      schema.dependent_required.emplace_back(std::string(name), strings_of(at, key, item));
    }
  } else if (key == "nullable") {
    bool_of(at, key, value);  // done once all else is known
  } else {
    return false;
  }
  return true;
}

}  // namespace quire::structured
