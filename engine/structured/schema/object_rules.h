#pragma once
// Objects: listed keys in their order, then additional ones, as a graph of places between members.

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/structured/schema/value_rules.h"

namespace quire::structured {

class ObjectRules {
 public:
  ObjectRules(ValueRules& values, const Disjunct& what) : values_(values), what_(what) {}
  ExprId build();

 private:
  struct Key {
    std::string name;
    bool required;
    ExprId value;
  };
  struct Others {  // keys that are not listed
    RegexId key;   // with its quotes and colon
    ExprId value;
  };

  struct Place;
  struct Graph;
  struct Members;

  void collect_keys();
  void collect_others();
  RegexId allowed_names(SchemaId rule);
  Conjunction value_of(const std::string& key);
  Conjunction free_value(const std::vector<bool>& matched);
  void add_matched_parts(Conjunction& value, const Schema& schema, bool is_listed,
                         const std::vector<bool>& matched) const;
  void add_unevaluated(Conjunction& value, const std::string* key,
                       const std::vector<bool>& matched);
  bool declares(const Schema& schema, const std::string* key, const std::vector<bool>& matched);
  bool name_fits(const std::string& key);
  Graph empty_graph() const;
  Members make_members();
  std::vector<bool> may_end(const Graph& graph) const;
  void add_members(Graph& graph, Place here, const Members& members) const;
  ExprId graph();
  bool closed() const;

  ValueRules& values_;
  const Disjunct& what_;
  std::vector<std::string> names_;                                // all that are listed, in order
  using OwnedParts = std::vector<std::pair<SchemaId, SchemaId>>;  // whose keyword, and what it says
  std::unordered_map<std::string, OwnedParts> parts_;             // of "properties", by key
  std::unordered_map<std::string, std::vector<Signed>> said_;     // of what_.values, by key
  std::vector<Key> keys_;
  std::vector<Key> free_;  // required, not listed: in any order, among the others
  std::vector<Others> others_;
  std::vector<std::pair<std::string, std::string>> patterns_;  // pattern, its schema's pointer
  std::uint32_t min_ = 0, max_ = kUnbounded;
};

}  // namespace quire::structured
