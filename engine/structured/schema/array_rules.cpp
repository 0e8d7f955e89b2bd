#include "engine/structured/schema/array_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/structured/regex/char_set.h"
#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/schema_fields.h"

namespace quire::structured {
namespace {

constexpr std::size_t kMostContains = 3;

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
      contains_.push_back({id,
                           {*schema.contains, false},
                           schema.min_contains.value_or(1),
                           schema.max_contains.value_or(kUnbounded)});
    }
  }
  for (const Signed& some : what_.some_item) {
    contains_.push_back({values_.document_.root(), some, 1, kUnbounded});
  }
  std::erase_if(contains_,
                [](const Contains& one) { return one.least == 0 && one.most == kUnbounded; });
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
  if (unique_ != nullptr && max_ > 1 && !differ_by_type()) return distinct();
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
  const std::uint64_t most = values_.limits_.grammar_states / 2;
  if (places > most) {
    throw GrammarFailure(
        GrammarErrorKind::limit,
        fmt::format("items are counted (minItems, maxItems) up to {}, here to {}",
                    (most - 2) / 3 / counts - 1, fixed_),
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
  const std::uint32_t alike = first_alike();
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

// From this index on all items are alike; before it, each has a schema of its own.
std::uint32_t ArrayRules::first_alike() const {
  std::uint32_t alike = 0;
  for (const SchemaId id : what_.schemas) {
    alike =
        std::max(alike, static_cast<std::uint32_t>(values_.document_.at(id).prefix_items.size()));
  }
  for (const auto& item : what_.items) alike = std::max(alike, item.index + 1);
  return alike;
}

// No two items can have a type in common, so that none can be equal.
bool ArrayRules::differ_by_type() {
  const std::uint32_t alike = first_alike();
  std::uint8_t seen = 0;
  for (std::uint32_t i = 0; i <= alike && i < max_; ++i) {
    std::uint8_t types = 0;
    for (const Disjunct& one : values_.disjuncts_.of(item(i, 0))) types |= one.types;
    // 1.0 and 1 are told apart by type here, and are one value where a fraction may be zero.
    if (types & kNumber) types |= kNumber;
    const bool repeats = i == alike && max_ > alike + 1;
    if ((seen & types) != 0 || (repeats && types != 0)) return false;
    seen |= types;
  }
  return true;
}

void ArrayRules::refuse_unique(const char* why) const {
  schema_unsupported(unique_->pointer, "uniqueItems", why);
}

ExprId ArrayRules::distinct() {
  if (!contains_.empty()) refuse_unique("beside \"contains\" is not supported");
  const auto few = distinct_among_few();
  const ExprId list = few ? *few : distinct_texts();
  values_.refuse_undecided(what_, kArray);
  return list;
}

// Over a known set of values. Empty: there are more, or they are no lexemes.
std::optional<ExprId> ArrayRules::distinct_among_few() {
  RegexStore::DistinctRow row;
  std::vector<json::value> all;
  for (std::uint32_t i = 0; i <= first_alike() && i < max_; ++i) {
    const auto values = values_.finite_values(item(i, 0));
    if (!values) return std::nullopt;
    std::uint64_t& allowed = row.allowed.emplace_back(0);
    for (const json::value& value : *values) {
      const auto same = [&](const json::value& other) { return same_value(value, other); };
      const auto at = std::find_if(all.begin(), all.end(), same) - all.begin();
      if (static_cast<std::size_t>(at) == RegexStore::kMostDistinct) return std::nullopt;
      if (static_cast<std::size_t>(at) == all.size()) all.push_back(value);
      allowed |= std::uint64_t{1} << at;
    }
  }
  Rules& rules = values_.rules_;
  for (const json::value& value : all) {
    RegexId& text = row.values.emplace_back(kNothing);
    if (!rules.is_lexeme(values_.literal(value), text)) return std::nullopt;
  }
  const RegexId open = values_.style_.open('[');
  const RegexId bare = values_.store_.literal("]");
  std::vector<RegexId> ways;
  if (min_ == 0) ways.push_back(bare);
  row.min = std::max(min_, 1u);
  row.max = max_;
  row.comma = values_.style_.comma();
  row.close = values_.style_.close(']');
  if (row.min <= all.size()) ways.push_back(values_.store_.distinct(std::move(row)));
  const RegexId list = values_.store_.concat(open, values_.store_.any_of(std::move(ways)));
  return values_.store_.alive(list) ? rules.solid(list) : rules.nothing();
}

namespace {

// All texts of the item's value.
RegexId same_item(RegexStore& store, std::string_view text) {
  if (text.starts_with('"')) {
    const RegexId quote = store.literal("\"");
    const json::value value = json::parse(json::string_view(text.data(), text.size()));
    return store.concat({quote, json_spellings(store, value.get_string()), quote});
  }
  const bool is_number = text.find_first_of("0123456789") == 0 || text.starts_with('-');
  return is_number ? NumberText(store).equal_to(std::string(text)) : store.literal(text);
}

}  // namespace

// Over any texts: what has come is known once it has come.
ExprId ArrayRules::distinct_texts() {
  Rules& rules = values_.rules_;
  RegexStore& store = values_.store_;
  const ExprId value = item_value(0, 0);
  const auto texts = first_alike() == 0 ? rules.regular(value) : std::nullopt;
  if (!texts) {
    refuse_unique(
        "is supported for strings, numbers, booleans and null, all of one schema, for up to 64 "
        "values of "
        "enum or const, and where items differ by type; leave it out here, and drop what repeats "
        "from the answer");
  }
  // As values are compared: strings as constraints see them, numbers without exponent.
  const RegexId no_string =
      store.complement(store.concat(store.literal("\""), store.complement(kNothing)));
  const RegexId exponent =
      parse_pattern(store, "-?[0-9.]+[eE][\\s\\S]*", PatternUse::whole, Spelling::plain);
  const RegexId item = store.all_of(
      {*texts, store.any_of({values_.style_.quoted(values_.style_.characters()), no_string}),
       store.complement(exponent)});
  const RegexId close = values_.style_.close(']');
  std::vector<ExprId> ways;
  if (min_ == 0) ways.push_back(rules.lexeme(store.literal("]")));
  const std::uint32_t least = std::max(min_, 1u);
  if (has_values(item, least)) {
    ways.push_back(rules.unlike({item, values_.style_.comma(), close, least, max_, same_item}));
  }
  return rules.sequence({rules.lexeme(values_.style_.open('[')), rules.choice(ways)});
}

// So many that differ: then any that have come leave another one.
bool ArrayRules::has_values(RegexId item, std::uint32_t count) {
  constexpr std::uint32_t kMostNeeded = 1'000;
  if (count > kMostNeeded) refuse_unique("is supported beside minItems up to 1000");
  RegexStore& store = values_.store_;
  std::vector<RegexId> taken;
  while (store.alive(item)) {
    if (taken.size() + 1 == count) return true;
    taken.push_back(same_item(store, store.example(item)));
    item = store.all_of({item, store.complement(taken.back())});
  }
  return false;
}

// Whole numbers between the bounds, and perhaps more; false: there are too many.
bool ValueRules::add_integers(const Disjunct& what, std::vector<json::value>& to) const {
  constexpr double kFar = 1e15;  // doubles are exact on this side of it
  double least = -HUGE_VAL, most = HUGE_VAL;
  for (const SchemaId id : what.schemas) {
    const Schema& schema = document_.at(id);
    if (schema.minimum) least = std::max(least, std::strtod(schema.minimum->c_str(), nullptr));
    if (schema.maximum) most = std::min(most, std::strtod(schema.maximum->c_str(), nullptr));
  }
  if (least > most) return true;
  if (least < -kFar || most > kFar || most - least > RegexStore::kMostDistinct + 1.0) return false;
  for (double i = std::floor(least); i <= most; ++i) to.emplace_back(static_cast<std::int64_t>(i));
  return true;
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
    } else if ((one.types & ~(kNull | kBoolean | kInteger)) == 0) {
      std::vector<json::value> candidates{nullptr, true, false};
      if ((one.types & kInteger) != 0 && !add_integers(one, candidates)) return std::nullopt;
      for (const json::value& value : candidates) {
        if (check_.fits(one, value)) add(value);
      }
    } else {
      return std::nullopt;
    }
  }
  return all;
}

}  // namespace quire::structured
