#pragma once
// A conjunction of schemas as a union of disjuncts: allOf, anyOf, oneOf, not, if and $ref resolved
// until only constraints of single schemas are left, which later stages turn into text.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/structured/schema/schema.h"

namespace quire::structured {

// A schema that must hold, or must not.
struct Signed {
  SchemaId schema = 0;
  bool negative = false;
  auto operator<=>(const Signed&) const = default;
};
using Conjunction = std::vector<Signed>;  // ascending, without repetition

// What one value has to fulfil, all of it.
struct Disjunct {
  // Of values that are arrays: at most, at least this many items; one at `index` fits `what`.
  struct Item {
    std::uint32_t index;
    Signed what;
  };
  // Schemas whose unevaluated* looks at what the `members` of the same disjunct have evaluated.
  struct Group {
    SchemaId owner;
    std::vector<SchemaId> members;
  };
  // Negated keywords that cannot be written as text; a fault unless the type is impossible anyway.
  struct Undecided {
    std::uint8_t types;
    std::string pointer, keyword;
  };

  std::uint8_t types = kAllTypes;
  std::vector<SchemaId> schemas;  // whose own keywords hold
  std::vector<SchemaId> silent;   // of these, what "not" left: they evaluate nothing
  std::vector<Group> groups;

  // Pieces that negations and dependencies leave.
  std::vector<std::string> present, absent;                    // keys of objects
  std::vector<std::pair<std::string, Signed>> values;          // of keys
  std::vector<std::pair<SchemaId, std::string>> not_keywords;  // of numbers and strings
  std::vector<json::value> not_values;
  std::uint32_t min_properties = 0, max_properties = 0xffffffff;
  std::uint32_t min_items = 0, max_items = 0xffffffff;
  std::vector<Item> items;
  std::vector<Signed> some_item, every_item;
  std::vector<Undecided> undecided;
};

class Disjuncts {
 public:
  Disjuncts(SchemaDocument& document, Meter& meter, const GrammarLimits& limits)
      : document_(document), meter_(meter), limits_(limits) {}

  // Empty: no value fits.
  std::vector<Disjunct> of(const Conjunction& conjunction);

 private:
  using List = std::vector<Disjunct>;
  List holds(SchemaId id);
  List expand(SchemaId id);
  std::vector<SchemaId> conjoined(const Schema& schema) const;
  List fails(SchemaId id);
  List sign(const Signed& what) { return what.negative ? fails(what.schema) : holds(what.schema); }
  List product(const List& a, const List& b);
  static void append(List& to, List from);
  void check_size(const List& list) const;

  List exactly_one(const Schema& schema);
  List condition(const Schema& schema);
  List dependencies(const Schema& schema);
  List fails_own(const Schema& schema, SchemaId id);
  void fails_object(const Schema& schema, List& out);
  void fails_array(const Schema& schema, List& out);
  List fails_in_place(const Schema& schema);
  bool can_fail(SchemaId id) const {
    return document_.at(id).nothing || document_.at(id).constrained;
  }
  bool excludes(SchemaId open_one, const List& others);
  bool apart(const Disjunct& closed, const Disjunct& other, int depth);

  SchemaDocument& document_;
  Meter& meter_;
  const GrammarLimits& limits_;
  std::map<SchemaId, List> held_;  // short results of holds(): equal references cost nothing again
  std::set<Signed> open_;  // being expanded: meeting one again means a schema that refers to itself
};

}  // namespace quire::structured
