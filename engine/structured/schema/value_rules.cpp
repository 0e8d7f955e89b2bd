#include "engine/structured/schema/value_rules.h"

#include <algorithm>

#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/array_rules.h"
#include "engine/structured/schema/object_rules.h"
#include "engine/structured/schema/schema_compiler.h"
#include "engine/structured/schema/schema_fields.h"

namespace quire::structured {

ExprId schema_expression(Rules& rules, JsonStyle& style, const json::value& schema, Meter& meter,
                         const GrammarLimits& limits, bool only_objects) {
  SchemaDocument document(schema, meter);
  ValueRules values(rules, style, document, meter, limits);
  return only_objects ? values.root_objects() : values.root();
}

ValueRules::ValueRules(Rules& rules, JsonStyle& style, SchemaDocument& document, Meter& meter,
                       const GrammarLimits& limits)
    : rules_(rules),
      store_(rules.store()),
      style_(style),
      document_(document),
      meter_(meter),
      limits_(limits),
      disjuncts_(document, meter, limits),
      check_(document, store_, meter),
      numbers_(store_) {}

ExprId ValueRules::root() { return value({{document_.root(), false}}); }

ExprId ValueRules::root_objects() {
  std::vector<ExprId> parts;
  for (Disjunct& one : disjuncts_.of({{document_.root(), false}})) {
    one.types &= kObject;
    if (one.types != 0) parts.push_back(disjunct(one));
  }
  return rules_.choice(parts);
}

void ValueRules::add(Conjunction& to, Signed what) {
  const auto at = std::lower_bound(to.begin(), to.end(), what);
  if (at == to.end() || *at != what) to.insert(at, what);
}

bool ValueRules::unconstrained(const Conjunction& conjunction) const {
  return std::all_of(conjunction.begin(), conjunction.end(), [&](const Signed& what) {
    const Schema& schema = document_.at(what.schema);
    return !what.negative && !schema.nothing && !schema.constrained;
  });
}

ExprId ValueRules::value(Conjunction conjunction) {
  std::erase_if(conjunction, [&](const Signed& what) { return unconstrained({what}); });
  if (conjunction.empty()) return rules_.call(style_.any_value());
  if (const auto made = made_.find(conjunction); made != made_.end()) return made->second;
  const RuleId rule = rules_.add_rule();
  made_[conjunction] = rules_.call(rule);  // for schemas that contain themselves
  const ExprId body = alternatives(conjunction);
  rules_.define(rule, body);
  // What is one lexeme needs no rule around it.
  const Rules::Kind kind = rules_.expr(body).kind;
  const bool simple = kind == Rules::Kind::lexeme || kind == Rules::Kind::solid;
  return made_[conjunction] = simple ? body : rules_.call(rule);
}

ExprId ValueRules::alternatives(const Conjunction& conjunction) {
  std::vector<ExprId> parts;
  for (const Disjunct& one : disjuncts_.of(conjunction)) {
    meter_.count(32);
    parts.push_back(disjunct(one));
  }
  return rules_.choice(parts);
}

void ValueRules::refuse_undecided(const Disjunct& what, std::uint8_t type) const {
  for (const auto& fault : what.undecided) {
    if (fault.types & type) {
      schema_unsupported(fault.pointer, fault.keyword, "cannot be negated here");
    }
  }
}

std::vector<json::value> ValueRules::fitting_values(const Disjunct& what) {
  const Schema* source = nullptr;
  for (const SchemaId id : what.schemas) {
    const Schema& schema = document_.at(id);
    if (!schema.values) continue;
    if (source == nullptr || schema.values->size() < source->values->size()) source = &schema;
  }
  std::vector<json::value> fitting;
  for (const json::value& value : *source->values) {
    if (check_.fits(what, value, source)) fitting.push_back(value);
  }
  return fitting;
}

ExprId ValueRules::disjunct(const Disjunct& what) {
  const bool listed = std::any_of(what.schemas.begin(), what.schemas.end(),
                                  [&](SchemaId id) { return document_.at(id).values.has_value(); });
  std::vector<ExprId> parts;
  if (listed) {
    std::vector<std::string> strings;
    for (const json::value& value : fitting_values(what)) {
      if (value.is_string()) {
        strings.push_back('"' + json_escaped(value.get_string()) + '"');
      } else {
        parts.push_back(literal(value));
      }
    }
    parts.push_back(rules_.lexeme(store_.literals(std::move(strings))));
    return rules_.choice(parts);
  }
  if (what.types == kAllTypes && what.schemas.size() == 1 && what.not_values.empty() &&
      !document_.at(what.schemas[0]).constrained) {
    return rules_.call(style_.any_value());
  }
  const auto word = [&](std::uint8_t type, json::value value, const char* text) {
    if ((what.types & type) == 0) return;
    const auto same = [&](const json::value& other) { return other == value; };
    if (std::any_of(what.not_values.begin(), what.not_values.end(), same)) return;
    refuse_undecided(what, type);
    parts.push_back(rules_.lexeme(store_.literal(text)));
  };
  word(kNull, nullptr, "null");
  word(kBoolean, true, "true");
  word(kBoolean, false, "false");
  if (what.types & kNumber) {
    refuse_undecided(what, kNumber);
    parts.push_back(rules_.lexeme(number(what, (what.types & kFraction) == 0)));
  }
  if (what.types & kString) parts.push_back(string(what));
  if (what.types & kArray) parts.push_back(ArrayRules(*this, what).build());
  if (what.types & kObject) parts.push_back(ObjectRules(*this, what).build());
  return rules_.choice(parts);
}

ExprId ValueRules::literal(const json::value& value) {
  const auto list = [&](char open, char close, std::vector<ExprId> members) {
    std::vector<ExprId> parts{rules_.lexeme(style_.open(open))};
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) parts.push_back(rules_.lexeme(style_.comma()));
      parts.push_back(members[i]);
    }
    const ExprId closing = rules_.lexeme(style_.close(close));
    const std::string_view bare(&close, 1);
    parts.push_back(members.empty() ? rules_.lexeme(store_.literal(bare)) : closing);
    return rules_.sequence(parts);
  };
  std::vector<ExprId> members;
  if (value.is_array()) {
    for (const json::value& item : value.get_array()) members.push_back(literal(item));
    return list('[', ']', std::move(members));
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.get_object()) {
      members.push_back(
          rules_.sequence({rules_.lexeme(style_.key(std::string_view(key))), literal(item)}));
    }
    return list('{', '}', std::move(members));
  }
  if (value.is_string()) {
    return rules_.lexeme(store_.literal('"' + json_escaped(value.get_string()) + '"'));
  }
  if (value.is_number()) return rules_.lexeme(store_.literal(decimal_of(value)));
  const char* word = value.is_null() ? "null" : value.get_bool() ? "true" : "false";
  return rules_.lexeme(store_.literal(word));
}

RegexId ValueRules::number(const Disjunct& what, bool whole) {
  std::vector<RegexId> parts;
  for (const SchemaId id : what.schemas) {
    const Schema& schema = document_.at(id);
    if (schema.minimum) {
      parts.push_back(numbers_.at_least({*schema.minimum, schema.exclusive_minimum}));
    }
    if (schema.maximum) {
      parts.push_back(numbers_.at_most({*schema.maximum, schema.exclusive_maximum}));
    }
    if (schema.multiple_of) {
      parts.push_back(numbers_.multiple_of(*schema.multiple_of, schema.pointer));
    }
  }
  for (const auto& [id, keyword] : what.not_keywords) {
    const Schema& schema = document_.at(id);
    if (keyword == "minimum") {
      parts.push_back(numbers_.at_most({*schema.minimum, !schema.exclusive_minimum}));
    } else if (keyword == "maximum") {
      parts.push_back(numbers_.at_least({*schema.maximum, !schema.exclusive_maximum}));
    } else if (keyword == "multipleOf") {
      parts.push_back(store_.complement(numbers_.multiple_of(*schema.multiple_of, schema.pointer)));
    }
  }
  for (const json::value& value : what.not_values) {
    if (value.is_number()) {
      parts.push_back(store_.complement(numbers_.equal_to(decimal_of(value))));
    }
  }
  if ((what.types & kInteger) == 0) {
    const RegexId zeros =
        parse_pattern(store_, "-?[0-9]+(\\.0*)?", PatternUse::whole, Spelling::plain);
    parts.push_back(store_.complement(zeros));
  }
  if (parts.empty()) return whole ? numbers_.integers() : style_.any_number();
  parts.push_back(whole ? numbers_.bounded_integers() : numbers_.decimals());
  const RegexId all = store_.all_of(std::move(parts));
  return store_.alive(all) ? all : kNothing;
}

RegexId ValueRules::pattern(const std::string& text, const std::string& pointer) {
  try {
    return parse_pattern(store_, text, PatternUse::search, Spelling::json);
  } catch (const GrammarFailure& failure) {
    throw GrammarFailure(failure.kind(), failure.what(), pointer);
  }
}

RegexId ValueRules::length(std::uint32_t min, std::uint32_t max) {
  return store_.repeat(chars_regex(store_, CharSet::all(), Spelling::json), min, max);
}

}  // namespace quire::structured
