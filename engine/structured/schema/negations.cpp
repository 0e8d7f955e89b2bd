// What must be true of a value that does not fit a schema: one disjunct for each way not to.

#include <algorithm>

#include "engine/structured/schema/disjuncts.h"

namespace quire::structured {
namespace {

Disjunct of_types(std::uint8_t types) {
  Disjunct disjunct;
  disjunct.types = types;
  return disjunct;
}

// Any value but these. Of lists and objects that are not given by enum, what is not empty cannot be
// left out of a grammar.
Disjunct none_of(const std::vector<json::value>& values, const Schema& schema) {
  Disjunct disjunct;
  disjunct.not_values = values;
  for (const json::value& value : values) {
    if (value.is_array() && value.get_array().empty()) {
      disjunct.min_items = 1;
    } else if (value.is_object() && value.get_object().empty()) {
      disjunct.min_properties = 1;
    } else if (value.is_array() || value.is_object()) {
      disjunct.undecided.push_back(
          {value.is_array() ? kArray : kObject, schema.pointer, schema.values_keyword});
    }
  }
  return disjunct;
}

}  // namespace

Disjuncts::List Disjuncts::fails(SchemaId id) {
  const Schema& schema = document_.at(id);
  if (schema.nothing) return {Disjunct{}};
  if (!open_.insert({id, true}).second) {
    throw GrammarFailure(GrammarErrorKind::unsupported,
                         "the negation of a schema that refers to itself is not supported",
                         schema.pointer);
  }
  List list = fails_own(schema, id);
  append(list, fails_in_place(schema));
  open_.erase({id, true});
  for (Disjunct& disjunct : list) {
    const std::vector<SchemaId> left = disjunct.schemas;
    disjunct.silent.insert(disjunct.silent.end(), left.begin(), left.end());
  }
  check_size(list);
  return list;
}

Disjuncts::List Disjuncts::fails_in_place(const Schema& schema) {
  List list;
  for (const SchemaId part : schema.all_of) append(list, fails(part));
  if (schema.ref) append(list, fails(*schema.ref));
  if (!schema.any_of.empty()) {
    List none{Disjunct{}};
    for (const SchemaId part : schema.any_of) none = product(none, fails(part));
    append(list, std::move(none));
  }
  if (!schema.one_of.empty()) {
    List none{Disjunct{}};
    for (const SchemaId part : schema.one_of) none = product(none, fails(part));
    append(list, std::move(none));
    for (std::size_t i = 0; i < schema.one_of.size(); ++i) {
      for (std::size_t j = i + 1; j < schema.one_of.size(); ++j) {
        append(list, product(holds(schema.one_of[i]), holds(schema.one_of[j])));
      }
    }
  }
  if (schema.negated) append(list, holds(*schema.negated));
  if (schema.if_ && schema.then_) {
    append(list, product(holds(*schema.if_), fails(*schema.then_)));
  }
  if (schema.if_ && schema.else_) {
    append(list, product(fails(*schema.if_), fails(*schema.else_)));
  }
  for (const auto& [key, needed] : schema.dependent_required) {
    for (const std::string& other : needed) {
      Disjunct disjunct = of_types(kObject);
      disjunct.present = {key};
      disjunct.absent = {other};
      if (key != other) list.push_back(std::move(disjunct));
    }
  }
  for (const auto& [key, id] : schema.dependent_schemas) {
    Disjunct with = of_types(kObject);
    with.present = {key};
    append(list, product({with}, fails(id)));
  }
  return list;
}

Disjuncts::List Disjuncts::fails_own(const Schema& schema, SchemaId id) {
  List list;
  if (schema.types != kAllTypes) {
    list.push_back(of_types(static_cast<std::uint8_t>(kAllTypes & ~schema.types)));
  }
  if (schema.values) {
    list.push_back(none_of(*schema.values, schema));
  }
  const auto keyword = [&](bool present, std::uint8_t types, const char* name) {
    if (!present) return;
    Disjunct disjunct = of_types(types);
    disjunct.not_keywords.emplace_back(id, name);
    list.push_back(std::move(disjunct));
  };
  keyword(schema.minimum.has_value(), kNumber, "minimum");
  keyword(schema.maximum.has_value(), kNumber, "maximum");
  keyword(schema.multiple_of.has_value(), kNumber, "multipleOf");
  keyword(schema.min_length.value_or(0) > 0, kString, "minLength");
  keyword(schema.max_length.has_value(), kString, "maxLength");
  keyword(schema.pattern.has_value(), kString, "pattern");
  keyword(schema.format.has_value(), kString, "format");
  keyword(schema.content_encoding.has_value(), kString, "contentEncoding");
  fails_object(schema, list);
  fails_array(schema, list);
  return list;
}

void Disjuncts::fails_object(const Schema& schema, List& out) {
  for (const std::string& key : schema.required) {
    Disjunct disjunct = of_types(kObject);
    disjunct.absent = {key};
    out.push_back(std::move(disjunct));
  }
  for (const auto& [key, id] : schema.properties) {
    Disjunct disjunct = of_types(kObject);
    disjunct.present = {key};
    disjunct.values = {{key, {id, true}}};
    if (can_fail(id)) out.push_back(std::move(disjunct));
  }
  if (schema.min_properties.value_or(0) > 0) {
    Disjunct disjunct = of_types(kObject);
    disjunct.max_properties = *schema.min_properties - 1;
    out.push_back(std::move(disjunct));
  }
  if (schema.max_properties) {
    Disjunct disjunct = of_types(kObject);
    disjunct.min_properties = *schema.max_properties + 1;
    out.push_back(std::move(disjunct));
  }
  const auto undecided = [&](const std::optional<SchemaId>& part, const char* name) {
    if (!part || !can_fail(*part)) return;
    Disjunct disjunct = of_types(kObject);
    disjunct.undecided.push_back({kObject, schema.pointer, name});
    out.push_back(std::move(disjunct));
  };
  undecided(schema.additional_properties, "additionalProperties");
  undecided(schema.property_names, "propertyNames");
  undecided(schema.unevaluated_properties, "unevaluatedProperties");
  for (const auto& member : schema.pattern_properties) {
    undecided(member.second, "patternProperties");
  }
}

void Disjuncts::fails_array(const Schema& schema, List& out) {
  if (schema.min_items.value_or(0) > 0) {
    Disjunct disjunct = of_types(kArray);
    disjunct.max_items = *schema.min_items - 1;
    out.push_back(std::move(disjunct));
  }
  if (schema.max_items) {
    Disjunct disjunct = of_types(kArray);
    disjunct.min_items = *schema.max_items + 1;
    out.push_back(std::move(disjunct));
  }
  for (std::size_t i = 0; i < schema.prefix_items.size(); ++i) {
    if (!can_fail(schema.prefix_items[i])) continue;
    Disjunct disjunct = of_types(kArray);
    disjunct.min_items = static_cast<std::uint32_t>(i + 1);
    disjunct.items.push_back({static_cast<std::uint32_t>(i), {schema.prefix_items[i], true}});
    out.push_back(std::move(disjunct));
  }
  const auto undecided = [&](const char* name) {
    Disjunct disjunct = of_types(kArray);
    disjunct.undecided.push_back({kArray, schema.pointer, name});
    out.push_back(std::move(disjunct));
  };
  if (schema.items && can_fail(*schema.items)) {
    if (schema.prefix_items.empty()) {
      Disjunct disjunct = of_types(kArray);
      disjunct.some_item.push_back({*schema.items, true});
      out.push_back(std::move(disjunct));
    } else {
      undecided("items");
    }
  }
  if (schema.contains) {
    if (!schema.max_contains && schema.min_contains.value_or(1) == 1) {
      Disjunct disjunct = of_types(kArray);
      disjunct.every_item.push_back({*schema.contains, true});
      out.push_back(std::move(disjunct));
    } else if (schema.max_contains || schema.min_contains.value_or(1) > 1) {
      undecided("contains");
    }
  }
  if (schema.unique_items) undecided("uniqueItems");
  if (schema.unevaluated_items) undecided("unevaluatedItems");
}

}  // namespace quire::structured
