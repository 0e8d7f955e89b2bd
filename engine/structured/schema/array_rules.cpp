#include "engine/structured/schema/array_rules.h"

#include <algorithm>

#include "engine/structured/schema/schema_fields.h"

namespace quire::structured {
namespace {

constexpr std::size_t kMostContains = 3;
constexpr std::size_t kMostDistinct = 10;

}  // namespace

void ArrayRules::collect() {
  min_ = what_.min_items;
  max_ = what_.max_items;
  for (const SchemaId id : what_.schemas) {
    const Schema& schema = values_.document_.at(id);
    min_ = std::max(min_, schema.min_items.value_or(0));
    max_ = std::min(max_, schema.max_items.value_or(kUnbounded));
    fixed_ = std::max(fixed_, static_cast<std::uint32_t>(schema.prefix_items.size()));
    if (schema.unique_items) unique_ = &schema;
    if (schema.contains) {
      contains_.push_back({id, {*schema.contains, false}, schema.min_contains.value_or(1),
                           schema.max_contains.value_or(kUnbounded)});
    }
  }
  for (const Signed& some : what_.some_item) {
    contains_.push_back({values_.document_.root(), some, 1, kUnbounded});
  }
  std::erase_if(contains_, [](const Contains& one) {
    return one.least == 0 && one.most == kUnbounded;
  });
  for (const auto& item : what_.items) fixed_ = std::max(fixed_, item.index + 1);
  if (contains_.size() > kMostContains) {
    throw GrammarFailure(GrammarErrorKind::limit, "too many \"contains\" for one array",
                         values_.document_.at(contains_[0].owner).pointer);
  }
}

ExprId ArrayRules::build() {
  collect();
  if (max_ < min_) return values_.rules_.nothing();
  fixed_ = std::max(fixed_, min_);
  if (max_ != kUnbounded) fixed_ = std::max(fixed_, max_);
  if (unique_ != nullptr && max_ > 1) return distinct();
  const ExprId result = counted();
  values_.refuse_undecided(what_, kArray);
  return result;
}

Conjunction ArrayRules::item(std::uint32_t index, std::uint32_t claimed) {
  Conjunction all;
  const auto evaluates = [&](const Schema& schema) {
    return index < schema.prefix_items.size() || schema.items.has_value();
  };
  for (const SchemaId id : what_.schemas) {
    const Schema& schema = values_.document_.at(id);
    if (index < schema.prefix_items.size()) {
      ValueRules::add(all, {schema.prefix_items[index], false});
    } else if (schema.items) {
      ValueRules::add(all, {*schema.items, false});
    }
  }
  for (const auto& one : what_.items) {
    if (one.index == index) ValueRules::add(all, one.what);
  }
  for (const Signed& every : what_.every_item) ValueRules::add(all, every);
  for (std::size_t i = 0; i < contains_.size(); ++i) {
    Signed what = contains_[i].what;
    if (claimed >> i & 1) {
      ValueRules::add(all, what);
    } else if (contains_[i].most != kUnbounded) {
      what.negative = !what.negative;
      ValueRules::add(all, what);
    }
  }
  for (const auto& group : what_.groups) {
    const auto& rest = values_.document_.at(group.owner).unevaluated_items;
    if (!rest) continue;
    const bool seen = std::any_of(group.members.begin(), group.members.end(), [&](SchemaId id) {
      const Schema& schema = values_.document_.at(id);
      bool counted = false;
      for (std::size_t i = 0; i < contains_.size(); ++i) {
        counted |= contains_[i].owner == id && (claimed >> i & 1);
      }
      return counted || evaluates(schema) ||
             (id != group.owner && schema.unevaluated_items.has_value());
    });
    if (!seen) ValueRules::add(all, {*rest, false});
  }
  return all;
}

ExprId ArrayRules::item_value(std::uint32_t index, std::uint32_t claimed) {
  return values_.value(item(index, claimed));
}

// Places: i items behind us (at most fixed_), and how often each contains was fulfilled.
ExprId ArrayRules::counted() {
  Rules& rules = values_.rules_;
  std::vector<std::uint32_t> caps;
  std::uint64_t counts = 1;
  for (const Contains& one : contains_) {
    caps.push_back(one.most != kUnbounded ? one.most : one.least);
    counts *= caps.back() + 1;
  }
  const std::uint64_t places = (std::uint64_t{fixed_} + 1) * counts * 3 + 2;
  if (places > values_.limits_.grammar_states / 2) {
    throw GrammarFailure(
        GrammarErrorKind::limit, "too many items of an array to be counted",
        values_.document_.at(what_.schemas.empty() ? 0 : what_.schemas[0]).pointer);
  }
  enum Role : std::uint32_t { fresh, behind, wanted };
  const auto place = [&](Role role, std::uint32_t i, std::uint64_t count) {
    return static_cast<std::uint32_t>(2 + (i * counts + count) * 3 + role);
  };
  std::vector<Rules::Arc> arcs{{0, place(fresh, 0, 0), rules.lexeme(values_.style_.open('['))}};
  const ExprId comma = rules.lexeme(values_.style_.comma());
  const ExprId closing = rules.lexeme(values_.style_.close(']'));
  const ExprId bare = rules.lexeme(values_.store_.literal("]"));
  std::vector<ExprId> tail(std::size_t{1} << contains_.size());
  // Beyond prefixes, `some` index is as good as any.
  std::uint32_t alike = 0;
  for (const SchemaId id : what_.schemas) {
    alike = std::max(alike,
                     static_cast<std::uint32_t>(values_.document_.at(id).prefix_items.size()));
  }
  for (const auto& item : what_.items) alike = std::max(alike, item.index + 1);
  const bool needs_tail = max_ == kUnbounded || max_ > alike;
  for (std::uint32_t claimed = 0; needs_tail && claimed < tail.size(); ++claimed) {
    tail[claimed] = item_value(alike, claimed);
  }
  for (std::uint32_t i = 0; i <= fixed_; ++i) {
    for (std::uint64_t count = 0; count < counts; ++count) {
      values_.meter_.count(4);
      bool enough = i >= min_;
      for (std::uint64_t k = 0, left = count; k < contains_.size(); left /= caps[k] + 1, ++k) {
        enough = enough && left % (caps[k] + 1) >= contains_[k].least;
      }
      if (enough) arcs.push_back({place(behind, i, count), 1, closing});
      if (enough && i == 0) arcs.push_back({place(fresh, i, count), 1, bare});
      if (i >= max_) continue;
      arcs.push_back({place(behind, i, count), place(wanted, i, count), comma});
      for (std::uint32_t claimed = 0; claimed < tail.size(); ++claimed) {
        std::uint64_t next = 0, weight = 1, left = count;
        bool possible = true;
        for (std::size_t k = 0; k < contains_.size(); ++k) {
          const std::uint64_t have = left % (caps[k] + 1), claims = claimed >> k & 1;
          const bool over = have + claims > caps[k];
          possible = possible && !(over && contains_[k].most != kUnbounded);
          next += std::min<std::uint64_t>(have + claims, caps[k]) * weight;
          weight *= caps[k] + 1;
          left /= caps[k] + 1;
        }
        if (!possible) continue;
        const ExprId value = i < alike ? item_value(i, claimed) : tail[claimed];
        const std::uint32_t after = place(behind, std::min(i + 1, fixed_), next);
        arcs.push_back({place(wanted, i, count), after, value});
        if (i == 0) arcs.push_back({place(fresh, i, count), after, value});
      }
    }
  }
  return rules.graph(static_cast<std::uint32_t>(places), std::move(arcs));
}

// uniqueItems over a small set of values: a place for each set of values that were written.
ExprId ArrayRules::distinct() {
  const auto refuse = [&](const char* why) {
    schema_unsupported(unique_->pointer, "uniqueItems", why);
  };
  if (!contains_.empty()) refuse("beside \"contains\" is not supported");
  std::vector<json::value> all;
  std::vector<std::vector<std::size_t>> allowed;  // by index, the last for all further ones
  std::uint32_t alike = 0;
  for (const SchemaId id : what_.schemas) {
    alike = std::max(alike,
                     static_cast<std::uint32_t>(values_.document_.at(id).prefix_items.size()));
  }
  for (const auto& item : what_.items) alike = std::max(alike, item.index + 1);
  for (std::uint32_t i = 0; i <= alike && i < max_; ++i) {
    const auto values = values_.finite_values(item(i, 0));
    if (!values) refuse("is supported for items of an enum, const, boolean or null only");
    auto& list = allowed.emplace_back();
    for (const json::value& value : *values) {
      const auto same = [&](const json::value& other) { return same_value(value, other); };
      const auto at = std::find_if(all.begin(), all.end(), same);
      list.push_back(static_cast<std::size_t>(at - all.begin()));
      if (at == all.end()) all.push_back(value);
    }
  }
  if (all.size() > kMostDistinct) refuse("is supported for up to 10 different values only");
  Rules& rules = values_.rules_;
  std::vector<ExprId> literals;
  for (const json::value& value : all) literals.push_back(values_.literal(value));
  const auto sets = std::uint32_t{1} << all.size();
  const auto place = [&](std::uint32_t set, bool wanted) { return 2 + set * 2 + (wanted ? 1 : 0); };
  std::vector<Rules::Arc> arcs{{0, place(0, true), rules.lexeme(values_.style_.open('['))}};
  const ExprId comma = rules.lexeme(values_.style_.comma());
  const ExprId closing = rules.lexeme(values_.style_.close(']'));
  for (std::uint32_t set = 0; set < sets; ++set) {
    const auto written = static_cast<std::uint32_t>(__builtin_popcount(set));
    if (written > max_) continue;
    if (written >= min_) {
      if (written == 0) {
        arcs.push_back({place(0, true), 1, rules.lexeme(values_.store_.literal("]"))});
      } else {
        arcs.push_back({place(set, false), 1, closing});
      }
    }
    if (written > 0) arcs.push_back({place(set, false), place(set, true), comma});
    if (written >= max_ || allowed.empty()) continue;
    const auto& next = allowed[std::min<std::size_t>(written, allowed.size() - 1)];
    for (const std::size_t value : next) {
      const std::uint32_t bit = std::uint32_t{1} << value;
      if ((set & bit) == 0) {
        arcs.push_back({place(set, true), place(set | bit, false), literals[value]});
      }
    }
  }
  values_.refuse_undecided(what_, kArray);
  return rules.graph(2 + sets * 2, std::move(arcs));
}

std::optional<std::vector<json::value>> ValueRules::finite_values(const Conjunction& conjunction) {
  std::vector<json::value> all;
  const auto add = [&](const json::value& value) {
    const auto same = [&](const json::value& other) { return same_value(value, other); };
    if (std::none_of(all.begin(), all.end(), same)) all.push_back(value);
  };
  for (const Disjunct& one : disjuncts_.of(conjunction)) {
    const bool listed = std::any_of(one.schemas.begin(), one.schemas.end(), [&](SchemaId id) {
      return document_.at(id).values.has_value();
    });
    if (listed) {
      for (const json::value& value : fitting_values(one)) add(value);
    } else if ((one.types & ~(kNull | kBoolean)) == 0) {
      for (const json::value& value : {json::value(nullptr), json::value(true), json::value(false)}) {
        if (check_.fits(one, value)) add(value);
      }
    } else {
      return std::nullopt;
    }
  }
  return all;
}

}  // namespace quire::structured
