#include "engine/structured/schema/check_value.h"

#include <algorithm>
#include <cmath>

#include "base/decimal.h"
#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/formats.h"
#include "engine/structured/schema/number_text.h"
#include "engine/structured/schema/schema_fields.h"

namespace quire::structured {

std::uint8_t type_of_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return kNull;
    case json::kind::bool_:
      return kBoolean;
    case json::kind::int64:
    case json::kind::uint64:
      return kInteger;
    case json::kind::double_:
      return value.get_double() == std::floor(value.get_double()) ? kInteger : kFraction;
    case json::kind::string:
      return kString;
    case json::kind::array:
      return kArray;
    case json::kind::object:
      return kObject;
  }
  return 0;
}

std::uint32_t count_chars(std::string_view utf8) {
  std::uint32_t count = 0;
  for (const char c : utf8) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

bool same_value(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_double() != b.is_double())
      return Decimal::of(decimal_of(a)) == Decimal::of(decimal_of(b));
    return a == b;
  }
  if (a.is_array() && b.is_array()) {
    return std::equal(a.get_array().begin(), a.get_array().end(), b.get_array().begin(),
                      b.get_array().end(), same_value);
  }
  if (a.is_object() && b.is_object()) {
    if (a.get_object().size() != b.get_object().size()) return false;
    return std::all_of(a.get_object().begin(), a.get_object().end(), [&](const auto& member) {
      const auto* other = b.get_object().if_contains(member.key());
      return other != nullptr && same_value(member.value(), *other);
    });
  }
  return a == b;
}

bool ValueCheck::matches(const std::string& pattern, std::string_view text,
                         const std::string& pointer) {
  try {
    return store_.matches(parse_pattern(store_, pattern, PatternUse::search, Spelling::plain),
                          text);
  } catch (const GrammarFailure& failure) {
    throw GrammarFailure(failure.kind(), failure.what(), pointer);
  }
}

bool ValueCheck::in_format(const std::string& format, std::string_view text,
                           const std::string& pointer) {
  const auto known = format_regex(store_, format, Spelling::plain);
  if (!known) schema_unsupported(pointer, "format", "\"" + format + "\" is not known");
  return store_.matches(*known, text);
}

bool ValueCheck::fits(const Disjunct& disjunct, const json::value& value, const Schema* source) {
  if ((disjunct.types & type_of_value(value)) == 0) return false;
  const auto same = [&](const json::value& other) {
    meter_.count(8);
    return same_value(value, other);
  };
  if (std::any_of(disjunct.not_values.begin(), disjunct.not_values.end(), same)) return false;
  for (const SchemaId id : disjunct.schemas) {
    const Schema& schema = document_.at(id);
    if (!fits_own(schema, value, &schema == source)) return false;
  }
  for (const auto& [id, keyword] : disjunct.not_keywords) {
    if (fits_keyword(document_.at(id), keyword, value)) return false;
  }
  for (const auto& fault : disjunct.undecided) {
    const bool is_compared = fault.keyword == "enum" || fault.keyword == "const";  // above
    if (is_compared) continue;
    if (fault.types & type_of_value(value)) {
      schema_unsupported(fault.pointer, fault.keyword, "cannot be negated here");
    }
  }
  if (value.is_object()) {
    const json::object& object = value.get_object();
    const auto has = [&](const std::string& key) { return object.contains(key); };
    if (object.size() < disjunct.min_properties || object.size() > disjunct.max_properties ||
        !std::all_of(disjunct.present.begin(), disjunct.present.end(), has) ||
        std::any_of(disjunct.absent.begin(), disjunct.absent.end(), has)) {
      return false;
    }
    for (const auto& [key, what] : disjunct.values) {
      const auto* member = object.if_contains(key);
      if (member != nullptr && !fits(what, *member)) return false;
    }
  }
  if (value.is_array()) {
    const json::array& array = value.get_array();
    if (array.size() < disjunct.min_items || array.size() > disjunct.max_items) return false;
    for (const auto& item : disjunct.items) {
      if (item.index < array.size() && !fits(item.what, array[item.index])) return false;
    }
    for (const Signed& what : disjunct.every_item) {
      for (const json::value& item : array) {
        if (!fits(what, item)) return false;
      }
    }
    for (const Signed& what : disjunct.some_item) {
      if (std::none_of(array.begin(), array.end(),
                       [&](const json::value& item) { return fits(what, item); })) {
        return false;
      }
    }
  }
  return true;
}

bool ValueCheck::fits(SchemaId id, const json::value& value) {
  const Schema& schema = document_.at(id);
  constexpr int kMaxDepth = 300;
  if (++depth_ > kMaxDepth) {
    throw GrammarFailure(GrammarErrorKind::limit, "a value is nested too deeply", schema.pointer);
  }
  meter_.count(8);
  const bool fine = !schema.nothing && fits_own(schema, value) && fits_in_place(schema, value);
  --depth_;
  return fine;
}

bool ValueCheck::fits_in_place(const Schema& schema, const json::value& value) {
  const auto fine = [&](SchemaId id) { return fits(id, value); };
  if (!std::all_of(schema.all_of.begin(), schema.all_of.end(), fine)) return false;
  if (schema.ref && !fits(*schema.ref, value)) return false;
  if (!schema.any_of.empty() && std::none_of(schema.any_of.begin(), schema.any_of.end(), fine)) {
    return false;
  }
  if (!schema.one_of.empty() &&
      std::count_if(schema.one_of.begin(), schema.one_of.end(), fine) != 1) {
    return false;
  }
  if (schema.negated && fits(*schema.negated, value)) return false;
  if (schema.if_) {
    const auto& branch = fits(*schema.if_, value) ? schema.then_ : schema.else_;
    if (branch && !fits(*branch, value)) return false;
  }
  if (!value.is_object()) return true;
  for (const auto& [key, needed] : schema.dependent_required) {
    if (!value.get_object().contains(key)) continue;
    for (const std::string& other : needed) {
      if (!value.get_object().contains(other)) return false;
    }
  }
  return std::all_of(
      schema.dependent_schemas.begin(), schema.dependent_schemas.end(), [&](const auto& member) {
        return !value.get_object().contains(member.first) || fits(member.second, value);
      });
}

bool ValueCheck::fits_own(const Schema& schema, const json::value& value, bool listed) {
  if (schema.nothing || (schema.types & type_of_value(value)) == 0) return false;
  if (schema.values && !listed) {
    meter_.count(static_cast<std::uint32_t>(schema.values->size()));
    const auto same = [&](const json::value& other) { return same_value(value, other); };
    if (std::none_of(schema.values->begin(), schema.values->end(), same)) return false;
  }
  if (value.is_number()) return fits_number(schema, value);
  if (value.is_string()) return fits_string(schema, value.get_string());
  if (value.is_array()) return fits_array(schema, value.get_array());
  if (value.is_object()) return fits_object(schema, value.get_object());
  return true;
}

bool ValueCheck::fits_number(const Schema& schema, const json::value& value) {
  NumberText numbers(store_);
  const std::string text = decimal_of(value);
  if (schema.minimum &&
      !store_.matches(numbers.at_least({*schema.minimum, schema.exclusive_minimum}), text)) {
    return false;
  }
  if (schema.maximum &&
      !store_.matches(numbers.at_most({*schema.maximum, schema.exclusive_maximum}), text)) {
    return false;
  }
  return !schema.multiple_of ||
         store_.matches(numbers.multiple_of(*schema.multiple_of, schema.pointer), text);
}

bool ValueCheck::fits_string(const Schema& schema, std::string_view text) {
  const std::uint32_t chars = count_chars(text);
  if (chars < schema.min_length.value_or(0) || chars > schema.max_length.value_or(kUnbounded)) {
    return false;
  }
  if (schema.pattern && !matches(*schema.pattern, text, schema.pointer + "/pattern")) return false;
  return !schema.format || in_format(*schema.format, text, schema.pointer);
}

bool ValueCheck::fits_keyword(const Schema& schema, const std::string& keyword,
                              const json::value& value) {
  Schema one;
  one.pointer = schema.pointer;
  if (keyword == "minimum") {
    one.minimum = schema.minimum;
    one.exclusive_minimum = schema.exclusive_minimum;
  } else if (keyword == "maximum") {
    one.maximum = schema.maximum;
    one.exclusive_maximum = schema.exclusive_maximum;
  } else if (keyword == "multipleOf") {
    one.multiple_of = schema.multiple_of;
  } else if (keyword == "minLength") {
    one.min_length = schema.min_length;
  } else if (keyword == "maxLength") {
    one.max_length = schema.max_length;
  } else if (keyword == "pattern") {
    one.pattern = schema.pattern;
  } else if (keyword == "format") {
    one.format = schema.format;
  } else {
    schema_unsupported(schema.pointer, keyword, "cannot be negated");
  }
  return fits_own(one, value);
}

bool ValueCheck::fits_array(const Schema& schema, const json::array& array) {
  if (array.size() < schema.min_items.value_or(0) ||
      array.size() > schema.max_items.value_or(kUnbounded)) {
    return false;
  }
  std::uint32_t contained = 0;
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (i < schema.prefix_items.size()) {
      if (!fits(schema.prefix_items[i], array[i])) return false;
    } else if (schema.items && !fits(*schema.items, array[i])) {
      return false;
    }
    if (schema.contains && fits(*schema.contains, array[i])) ++contained;
    for (std::size_t j = 0; schema.unique_items && j < i; ++j) {
      if (same_value(array[i], array[j])) return false;
    }
  }
  if (schema.unevaluated_items) {
    schema_unsupported(schema.pointer, "unevaluatedItems", "beside enum or const is not supported");
  }
  return !schema.contains || (contained >= schema.min_contains.value_or(1) &&
                              contained <= schema.max_contains.value_or(kUnbounded));
}

bool ValueCheck::fits_object(const Schema& schema, const json::object& object) {
  if (object.size() < schema.min_properties.value_or(0) ||
      object.size() > schema.max_properties.value_or(kUnbounded)) {
    return false;
  }
  for (const std::string& key : schema.required) {
    if (!object.contains(key)) return false;
  }
  if (schema.unevaluated_properties) {
    schema_unsupported(schema.pointer, "unevaluatedProperties",
                       "beside enum or const is not supported");
  }
  for (const auto& [name, value] : object) {
    const std::string key(name);
    bool listed = false;
    for (const auto& [property, id] : schema.properties) {
      if (property != key) continue;
      listed = true;
      if (!fits(id, value)) return false;
    }
    for (const auto& [pattern, id] : schema.pattern_properties) {
      if (!matches(pattern, key, schema.pointer + "/patternProperties")) continue;
      listed = true;
      if (!fits(id, value)) return false;
    }
    if (!listed && schema.additional_properties && !fits(*schema.additional_properties, value)) {
      return false;
    }
    if (schema.property_names && !fits(*schema.property_names, json::value(key))) return false;
  }
  return true;
}

}  // namespace quire::structured
