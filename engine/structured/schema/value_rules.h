#pragma once
// From disjuncts to rules, one rule for each conjunction of schemas that a place asks for.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/structured/grammar/rules.h"
#include "engine/structured/schema/check_value.h"
#include "engine/structured/schema/disjuncts.h"
#include "engine/structured/schema/json_style.h"
#include "engine/structured/schema/number_text.h"

namespace quire::structured {

class ValueRules {
 public:
  ValueRules(Rules& rules, JsonStyle& style, SchemaDocument& document, Meter& meter,
             const GrammarLimits& limits);

  ExprId root();
  ExprId root_objects();
  // What may stand where all of these hold; nothing() when no value can.
  ExprId value(Conjunction conjunction);

 private:
  friend class ObjectRules;
  friend class ArrayRules;

  ExprId alternatives(const Conjunction& conjunction);
  ExprId disjunct(const Disjunct& what);
  ExprId literal(const json::value& value);
  RegexId number(const Disjunct& what, bool whole);
  ExprId string(const Disjunct& what);
  // The content of strings, as Spelling::json, without quotes.
  RegexId string_content(const Disjunct& what);
  void string_constraints(const Schema& schema, std::vector<RegexId>& parts);
  RegexId pattern(const std::string& text, const std::string& pointer);
  RegexId length(std::uint32_t min, std::uint32_t max);
  void refuse_undecided(const Disjunct& what, std::uint8_t type) const;
  // The values, if there are finitely many and they are known; else empty.
  std::optional<std::vector<json::value>> finite_values(const Conjunction& conjunction);
  bool add_integers(const Disjunct& what, std::vector<json::value>& to) const;
  std::vector<json::value> fitting_values(const Disjunct& what);
  // True when every value fits.
  bool unconstrained(const Conjunction& conjunction) const;
  static void add(Conjunction& to, Signed what);

  Rules& rules_;
  RegexStore& store_;
  JsonStyle& style_;
  SchemaDocument& document_;
  Meter& meter_;
  const GrammarLimits& limits_;
  Disjuncts disjuncts_;
  ValueCheck check_;
  NumberText numbers_;
  std::map<Conjunction, ExprId> made_;
};

}  // namespace quire::structured
