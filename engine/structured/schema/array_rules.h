#pragma once
// Arrays: items by their index, how many, and what they contain.

#include <optional>
#include <vector>

#include "engine/structured/schema/value_rules.h"

namespace quire::structured {

class ArrayRules {
 public:
  ArrayRules(ValueRules& values, const Disjunct& what) : values_(values), what_(what) {}
  ExprId build();

 private:
  struct Contains {
    SchemaId owner;
    Signed what;
    std::uint32_t least, most;  // items that fit
  };

  void collect();
  // `claimed`: the contains that this item counts for.
  Conjunction item(std::uint32_t index, std::uint32_t claimed);
  ExprId item_value(std::uint32_t index, std::uint32_t claimed);
  ExprId counted();
  ExprId distinct();
  std::optional<ExprId> distinct_among_few();
  ExprId distinct_texts();
  bool has_values(RegexId item, std::uint32_t count);
  [[noreturn]] void refuse_unique(const char* why) const;
  bool differ_by_type();
  std::uint32_t first_alike() const;
  std::uint32_t steps() const { return fixed_ + 1; }

  ValueRules& values_;
  const Disjunct& what_;
  std::vector<Contains> contains_;
  std::uint32_t min_ = 0, max_ = kUnbounded;
  std::uint32_t fixed_ = 0;  // from this index on all items are alike
  const Schema* unique_ = nullptr;
};

}  // namespace quire::structured
