#include "text/output/python_arguments.h"

namespace quire {

using namespace constraint;
using Function = CallConstraint::Function;

namespace {

Value words() { return either({text("True"), text("False"), text("None")}); }

bool has_type(const Value& schema, std::string_view name) {
  const Value type = member(schema, "type");
  return type.is_string() && type.string() == name;
}

Value keyword(const std::string& before, const std::string& key, const Value& property,
              const Function& function) {
  Value value = has_type(property, "boolean") && member(property, "enum").is_none() &&
                        member(property, "const").is_none()
                    ? either({text("True"), text("False")})
                    : schema_node(with_definitions(property, function.parameters),
                                  place_of(function, key));
  return sequence({text(before + key + "="), std::move(value)});
}

using Properties = std::vector<std::pair<std::string, Value>>;

// Each of them comes or does not.
void add_optional(const Properties& others, std::size_t from, const Function& function,
                  List& into) {
  for (std::size_t i = from; i < others.size(); ++i) {
    into.push_back(either({keyword(", ", others[i].first, others[i].second, function), text("")}));
  }
}

}  // namespace

Value with_definitions(const Value& property, const Value& schema) {
  if (!property.is(Value::Kind::dict)) return property;
  Dict whole = property.dict();
  for (const char* name : {"$defs", "definitions"}) {
    const Value definitions = member(schema, name);
    if (!definitions.is_none()) whole.set(name, definitions);
  }
  return Value(std::move(whole));
}

bool is_required(const Value& schema, const Value& key) {
  const Value required = member(schema, "required");
  if (!required.is(Value::Kind::list)) return false;
  for (const Value& one : required.list()) {
    if (one.is_string() && one.string() == key.string()) return true;
  }
  return false;
}

std::string place_of(const Function& function, const std::string& property) {
  std::string place = function.place + "/properties/";
  for (const char c : property) {
    if (c == '~' || c == '/') {
      place += c == '~' ? "~0" : "~1";
    } else {
      place += c;
    }
  }
  return place;
}

// The required ones, then the others; where none is required any of them may be the first.
Value python_arguments(const Function& function) {
  if (!function.held) {
    return separated({tag("", sequence({regex("[A-Za-z_][A-Za-z0-9_]*="), either({any_json(), words()})}), "")},
                     ", ", false);
  }
  Properties needed, others;
  if (const Value all = member(function.parameters, "properties"); all.is(Value::Kind::dict)) {
    for (const auto& [key, property] : all.dict()) {
      (is_required(function.parameters, key) ? needed : others).emplace_back(key.string(), property);
    }
  }
  List parts;
  for (const auto& [key, property] : needed) {
    parts.push_back(keyword(parts.empty() ? "" : ", ", key, property, function));
  }
  if (!needed.empty()) {
    add_optional(others, 0, function, parts);
    return sequence(std::move(parts));
  }
  List firsts = {text("")};
  for (std::size_t i = 0; i < others.size(); ++i) {
    List from = {keyword("", others[i].first, others[i].second, function)};
    add_optional(others, i + 1, function, from);
    firsts.push_back(sequence(std::move(from)));
  }
  return either(std::move(firsts));
}

}  // namespace quire
