#include "engine/structured/schema/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/decimal.h"
#include "engine/structured/schema/formats.h"
#include "engine/structured/schema/schema_fields.h"

namespace quire::structured {
namespace {

constexpr int kMaxDepth = 400;

// What the standard calls annotations, and names of places.
constexpr std::string_view kIgnored[] = {
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$comment", "$schema", "$id", "id", "$anchor", "$defs", "definitions", "$vocabulary",
    // What a text holds is not asserted by default (validation, section 8).
    "contentMediaType", "contentSchema",
    // OpenAPI's. What "discriminator" says the alternatives of oneOf say, too.
    "discriminator", "xml", "externalDocs",
    // Editors'.
    "markdownDescription", "enumDescriptions", "markdownEnumDescriptions", "enumNames",
    "enumItemLabels", "enumDeprecated", "defaultSnippets", "deprecationMessage", "errorMessage",
    "patternErrorMessage", "doNotSuggest", "suggestSortText", "allowTrailingCommas",
    "allowComments", "tsType", "javaType"};

// x-…: what vendors add, by the rules of OpenAPI.
bool is_annotation(std::string_view key) {
  return key.starts_with("x-") || std::ranges::find(kIgnored, key) != std::ranges::end(kIgnored);
}

std::string percent_decoded(std::string_view text, const std::string& pointer) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    const auto digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (error != std::errc() || digits.size() != 2 || end != digits.data() + 2) {
      schema_syntax(pointer, "$ref has a bad percent escape");
    }
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

}  // namespace

std::string escaped_pointer(std::string_view token) {
  std::string out;
  for (const char c : token) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string decimal_of(const json::value& number) {
  if (number.is_int64()) return std::to_string(number.get_int64());
  if (number.is_uint64()) return std::to_string(number.get_uint64());
  return Decimal::of(number.get_double()).plain();
}

SchemaDocument::SchemaDocument(const json::value& root, Meter& meter)
    : root_value_(root), meter_(meter) {
  read(root, "", 0);
}

SchemaId SchemaDocument::read(const json::value& value, const std::string& pointer, int depth) {
  const auto [known, is_new] =
      by_pointer_.try_emplace(pointer, static_cast<SchemaId>(schemas_.size()));
  if (!is_new) return known->second;
  const SchemaId id = known->second;
  if (depth > kMaxDepth) {
    throw GrammarFailure(GrammarErrorKind::limit, "the schema is nested too deeply", pointer);
  }
  meter_.count(16);
  schemas_.emplace_back();
  Schema schema;
  schema.pointer = pointer;
  if (value.is_bool()) {
    schema.nothing = !value.get_bool();
  } else if (value.is_object()) {
    for (const auto& [key, keyword] : value.get_object()) {
      read_keyword(schema, key, keyword, value.get_object(), depth + 1);
    }
    if (schema.format) read_format(schema);
    if (const auto* nullable = value.get_object().if_contains("nullable");
        nullable && *nullable == true) {
      schema = or_null(std::move(schema));
    }
  } else {
    schema_syntax(pointer, "a schema must be an object or a boolean");
  }
  schemas_[id] = std::move(schema);
  return id;
}

// OpenAPI's way to say that null is fine too, whatever else stands beside it.
Schema SchemaDocument::or_null(Schema schema) {
  Schema null, either;
  null.pointer = either.pointer = schema.pointer;
  null.constrained = either.constrained = true;
  null.keywords = either.keywords = 1;
  null.types = kNull;
  schema.types &= static_cast<std::uint8_t>(~kNull);
  for (Schema* one : {&schema, &null}) {
    either.any_of.push_back(static_cast<SchemaId>(schemas_.size()));
    schemas_.push_back(std::move(*one));
  }
  return either;
}

// A format of numbers becomes their bounds.
void SchemaDocument::read_format(Schema& schema) {
  const auto numbers = number_format(*schema.format);
  if (!numbers) {
    if (is_text_format(*schema.format)) return;
    // A pattern says all that the name would, and of a number it is a hint.
    if (schema.pattern || (schema.types & kString) == 0) {
      schema.format.reset();
      --schema.keywords;
      return;
    }
    schema_unsupported(schema.pointer, "format", "\"" + *schema.format + "\" is not known");
  }
  schema.format.reset();
  Schema bounds;
  bounds.pointer = schema.pointer;
  bounds.constrained = numbers->whole;
  bounds.keywords = 1;
  if (numbers->whole) {
    bounds.types = static_cast<std::uint8_t>(kAllTypes & ~kFraction);
    bounds.minimum = numbers->minimum;
    bounds.maximum = numbers->maximum;
  }
  schema.all_of.push_back(static_cast<SchemaId>(schemas_.size()));
  schemas_.push_back(std::move(bounds));
}

void SchemaDocument::read_keyword(Schema& schema, std::string_view key, const json::value& value,
                                  const json::object& object, int depth) {
  if (is_annotation(key)) {
    if ((key == "$id" || key == "id") && !schema.pointer.empty() && value.is_string()) {
      if (!value.get_string().starts_with("#")) {
        schema_unsupported(schema.pointer, key, "names a base of its own, which is not supported");
      }
    }
    return;
  }
  schema.constrained = true;
  ++schema.keywords;
  if (read_validation(schema, key, value, object)) return;
  if (read_applicator(schema, key, value, object, depth)) return;
  schema_unsupported(schema.pointer, key, "is not supported");
}

SchemaId SchemaDocument::child(const Schema& schema, std::string_view key, const json::value& value,
                               int depth) {
  return read(value, schema.pointer + '/' + escaped_pointer(key), depth);
}

std::vector<SchemaId> SchemaDocument::children(const Schema& schema, std::string_view key,
                                               const json::value& value, int depth) {
  if (!value.is_array()) schema_syntax(schema.pointer, key, "must be a list of schemas");
  std::vector<SchemaId> ids;
  for (std::size_t i = 0; i < value.get_array().size(); ++i) {
    ids.push_back(
        read(value.get_array()[i], fmt::format("{}/{}/{}", schema.pointer, key, i), depth));
  }
  return ids;
}

std::vector<std::pair<std::string, SchemaId>> SchemaDocument::members(const Schema& schema,
                                                                      std::string_view key,
                                                                      const json::value& value,
                                                                      int depth) {
  if (!value.is_object()) schema_syntax(schema.pointer, key, "must be an object of schemas");
  std::vector<std::pair<std::string, SchemaId>> result;
  for (const auto& [name, item] : value.get_object()) {
    const std::string place =
        fmt::format("{}/{}/{}", schema.pointer, key, escaped_pointer(std::string_view(name)));
    result.emplace_back(std::string(name), read(item, place, depth));
  }
  return result;
}

bool SchemaDocument::read_applicator(Schema& schema, std::string_view key, const json::value& value,
                                     const json::object& object, int depth) {
  const auto one = [&](std::optional<SchemaId>& out) {
    out = child(schema, key, value, depth);
    return true;
  };
  const auto list = [&](std::vector<SchemaId>& out) {
    out = children(schema, key, value, depth);
    if (out.empty()) schema_syntax(schema.pointer, key, "must not be empty");
    return true;
  };
  if (key == "allOf") return list(schema.all_of);
  if (key == "anyOf") return list(schema.any_of);
  if (key == "oneOf") return list(schema.one_of);
  if (key == "not") return one(schema.negated);
  if (key == "if") return one(schema.if_);
  if (key == "then") return one(schema.then_);
  if (key == "else") return one(schema.else_);
  if (key == "contains") return one(schema.contains);
  if (key == "additionalProperties") return one(schema.additional_properties);
  if (key == "propertyNames") return one(schema.property_names);
  if (key == "unevaluatedProperties") return one(schema.unevaluated_properties);
  if (key == "unevaluatedItems") return one(schema.unevaluated_items);
  if (key == "$ref") {
    schema.ref = resolve(string_of(schema.pointer, key, value), schema.pointer, depth);
    return true;
  }
  if (key == "properties") {
    schema.properties = members(schema, key, value, depth);
  } else if (key == "patternProperties") {
    schema.pattern_properties = members(schema, key, value, depth);
    for (const auto& [pattern, unused] : schema.pattern_properties) {
      if (pattern.find("\\p") == std::string::npos && pattern.find("\\P") == std::string::npos)
        continue;
      schema_unsupported(schema.pointer + "/patternProperties", pattern,
                         "has a Unicode property, which is supported in patterns of values only");
    }
  } else if (key == "dependentSchemas") {
    for (auto& member : members(schema, key, value, depth)) {
      schema.dependent_schemas.push_back(std::move(member));
    }
  } else if (key == "dependencies") {
    read_dependencies(schema, value, depth);
  } else if (key == "prefixItems") {
    list(schema.prefix_items);
  } else if (key == "items") {
    read_items(schema, value, object, depth);
  } else {
    // Of use beside "items" as a list only, and read there.
    return key == "additionalItems";
  }
  return true;
}

void SchemaDocument::read_items(Schema& schema, const json::value& value,
                                const json::object& object, int depth) {
  if (!value.is_array()) {
    schema.items = child(schema, "items", value, depth);
    return;
  }
  schema.prefix_items = children(schema, "items", value, depth);
  if (const auto* rest = object.if_contains("additionalItems")) {
    schema.items = child(schema, "additionalItems", *rest, depth);
  }
}

void SchemaDocument::read_dependencies(Schema& schema, const json::value& value, int depth) {
  if (!value.is_object()) schema_syntax(schema.pointer, "dependencies", "must be an object");
  for (const auto& [name, item] : value.get_object()) {
    if (item.is_array()) {
      schema.dependent_required.emplace_back(std::string(name),
                                             strings_of(schema.pointer, "dependencies", item));
    } else {
      const std::string place =
          schema.pointer + "/dependencies/" + escaped_pointer(std::string_view(name));
      schema.dependent_schemas.emplace_back(std::string(name), read(item, place, depth));
    }
  }
}

std::optional<std::string> SchemaDocument::find_anchor(const json::value& value,
                                                       std::string_view name,
                                                       const std::string& pointer,
                                                       int depth) const {
  if (depth > kMaxDepth) return std::nullopt;
  const auto inside = [&](const json::value& item, const std::string& token) {
    return find_anchor(item, name, pointer + '/' + token, depth + 1);
  };
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.get_array().size(); ++i) {
      if (auto found = inside(value.get_array()[i], std::to_string(i))) return found;
    }
  }
  if (!value.is_object()) return std::nullopt;
  for (const std::string_view key : {"$anchor", "$id", "id"}) {
    const auto* anchor = value.get_object().if_contains(key);
    if (anchor == nullptr || !anchor->is_string()) continue;
    const std::string_view text = anchor->get_string();
    if (text == (key == "$anchor" ? std::string(name) : '#' + std::string(name))) return pointer;
  }
  for (const auto& [key, item] : value.get_object()) {
    if (key == "enum" || key == "const") continue;
    if (auto found = inside(item, escaped_pointer(std::string_view(key)))) return found;
  }
  return std::nullopt;
}

SchemaId SchemaDocument::resolve(const std::string& reference, const std::string& from, int depth) {
  std::string_view rest = reference;
  if (root_value_.is_object()) {
    for (const std::string_view key : {"$id", "id"}) {
      const auto* id = root_value_.get_object().if_contains(key);
      if (id == nullptr || !id->is_string() || id->get_string().empty()) continue;
      const std::string_view base = id->get_string();
      const std::string_view bare = base.substr(0, base.find('#'));
      if (!bare.empty() && rest.substr(0, bare.size()) == bare) rest.remove_prefix(bare.size());
    }
  }
  if (rest.empty() || rest == "#") return root();
  if (rest[0] != '#') {
    schema_unsupported(from, "$ref",
                       fmt::format("to another document (\"{}\") is not supported", reference));
  }
  std::string pointer = percent_decoded(rest.substr(1), from);
  if (pointer[0] != '/') {
    const auto place = find_anchor(root_value_, pointer, "", 0);
    if (!place) schema_syntax(from, "$ref", fmt::format("leads nowhere: \"{}\"", reference));
    pointer = *place;
  }
  boost::system::error_code error;
  const json::value* target = root_value_.find_pointer(pointer, error);
  if (target == nullptr) {
    schema_syntax(from, "$ref", fmt::format("leads nowhere: \"{}\"", reference));
  }
  return read(*target, pointer, depth);
}

}  // namespace quire::structured
