#include "engine/structured/empty_part.h"

#include <algorithm>

namespace quire::structured {
namespace {

namespace json = boost::json;

constexpr int kMostTries = 48;
constexpr std::chrono::milliseconds kTimeOfOne{50};

std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) {
    if (c == '~' || c == '/') {
      text += c == '~' ? "~0" : "~1";
    } else {
      text += c;
    }
  }
  return text;
}

class Search {
 public:
  Search(const json::value& root, const Slice& slice) : root_(root), slice_(slice) {}

  // Nothing fits `schema`; where in it?
  std::string place_in(const json::value& schema, int depth = 0) {
    if (!schema.is_object() || depth > 100) return {};
    const json::object& object = schema.get_object();
    for (auto& [at, part] : needed_parts(object)) {
      if (fits_nothing(*part)) return at + place_in(*part, depth + 1);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      const auto* ways = object.if_contains(name);
      if (ways == nullptr || !ways->is_array() || ways->get_array().empty()) continue;
      if (std::ranges::all_of(ways->get_array(),
                              [&](const auto& way) { return fits_nothing(way); })) {
        return std::string("/") + name;
      }
    }
    return {};
  }

  bool fits_nothing(const json::value& part) {
    if (part.is_bool()) return !part.get_bool();
    if (!part.is_object() || ++tries_ > kMostTries) return false;
    json::object alone = part.get_object();
    for (const char* name : {"$defs", "definitions"}) {
      const auto* given = root_.is_object() ? root_.get_object().if_contains(name) : nullptr;
      if (given != nullptr && !alone.contains(name)) alone[name] = *given;
    }
    GrammarSpec spec;
    spec.kind = GrammarSpec::Kind::json_schema;
    spec.source = json::serialize(alone);
    GrammarContext context;
    context.limits.compile_time = kTimeOfOne;
    try {
      CompiledGrammar::compile(spec, std::move(context), slice_);
    } catch (const GrammarFailure& failure) {
      return failure.kind() == GrammarErrorKind::unsatisfiable;
    }
    return false;
  }

 private:
  using Part = std::pair<std::string, const json::value*>;

  // Parts without which there is no value.
  static std::vector<Part> needed_parts(const json::object& object) {
    std::vector<Part> parts;
    const auto* properties = object.if_contains("properties");
    const auto* required = object.if_contains("required");
    if (properties != nullptr && properties->is_object() && required != nullptr &&
        required->is_array()) {
      for (const json::value& name : required->get_array()) {
        const auto* one =
            name.is_string() ? properties->get_object().if_contains(name.get_string()) : nullptr;
        if (one != nullptr) parts.emplace_back("/properties/" + escaped(name.get_string()), one);
      }
    }
    const auto* least = object.if_contains("minItems");
    const auto* items = object.if_contains("items");
    if (least != nullptr && *least != 0 && items != nullptr) parts.emplace_back("/items", items);
    for (const char* name : {"allOf", "prefixItems"}) {
      const auto* all = object.if_contains(name);
      if (all == nullptr || !all->is_array()) continue;
      for (std::size_t i = 0; i < all->get_array().size(); ++i) {
        parts.emplace_back('/' + std::string(name) + '/' + std::to_string(i), &all->get_array()[i]);
      }
    }
    return parts;
  }

  const json::value& root_;
  const Slice& slice_;
  int tries_ = 0;
};

void find_schemas(const json::value& format, int depth,
                  std::vector<std::pair<std::string, const json::value*>>& found) {
  if (depth > 100) return;
  if (format.is_array()) {
    for (const json::value& one : format.get_array()) find_schemas(one, depth + 1, found);
  }
  if (!format.is_object()) return;
  const json::object& object = format.get_object();
  const auto* schema = object.if_contains("json_schema");
  const auto* place = object.if_contains("place");
  if (schema != nullptr && place != nullptr && place->is_string()) {
    found.emplace_back(std::string(place->get_string()), schema);
    return;
  }
  for (const auto& [key, value] : object) find_schemas(value, depth + 1, found);
}

void find_places(const json::value& format, int depth, std::vector<std::string>& found) {
  if (depth > 100) return;
  if (format.is_array()) {
    for (const json::value& one : format.get_array()) find_places(one, depth + 1, found);
  }
  if (!format.is_object()) return;
  for (const auto& [key, value] : format.get_object()) {
    if (key == "place" && value.is_string()) found.emplace_back(value.get_string());
    if (key != "json_schema" && key != "structural_tag") find_places(value, depth + 1, found);
  }
}

}  // namespace

std::string common_place_of_tag(const json::value& document) {
  std::vector<std::string> places;
  find_places(document, 0, places);
  if (places.empty()) return {};
  std::string common = places.front();
  for (const std::string& place : places) {
    while (!common.empty() && place != common && !place.starts_with(common + '/')) {
      const auto slash = common.rfind('/');
      common.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return common;
}

std::string empty_part_of_schema(const json::value& schema, const Slice& slice) {
  return Search(schema, slice).place_in(schema);
}

std::string empty_part_of_tag(const json::value& document, const Slice& slice) {
  std::vector<std::pair<std::string, const json::value*>> schemas;
  find_schemas(document, 0, schemas);
  for (const auto& [place, schema] : schemas) {
    Search search(*schema, slice);
    if (search.fits_nothing(*schema)) return place + search.place_in(*schema);
  }
  return {};
}

}  // namespace quire::structured
