#include "engine/structured/schema/disjuncts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "engine/structured/schema/check_value.h"

namespace quire::structured {
namespace {

template <class T>
void extend(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// As a set, in the order of the first.
template <class T>
void unite(std::vector<T>& to, const std::vector<T>& from) {
  const auto end = to.size();
  for (const T& one : from) {
    const auto known = to.begin() + static_cast<std::ptrdiff_t>(end);
    if (std::find(to.begin(), known, one) == known) to.push_back(one);
  }
}

// As many comparisons as a list has pairs with another would take too long.
constexpr std::size_t kFewPairs = 256;

void unite(std::vector<std::string>& to, const std::vector<std::string>& from) {
  if (to.size() * from.size() <= kFewPairs) return unite<std::string>(to, from);
  const std::unordered_set<std::string> known(to.begin(), to.end());
  std::ranges::copy_if(from, std::back_inserter(to),
                       [&](const std::string& one) { return !known.contains(one); });
}

bool have_common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.size() * b.size() <= kFewPairs) return std::ranges::find_first_of(a, b) != a.end();
  const std::unordered_set<std::string> known(a.begin(), a.end());
  return std::ranges::any_of(b, [&](const std::string& one) { return known.contains(one); });
}

Disjunct with_types(std::uint8_t types) {
  Disjunct disjunct;
  disjunct.types = types;
  return disjunct;
}

// False: nothing can fulfil both.
bool merge(Disjunct& into, const Disjunct& from) {
  into.types &= from.types;
  unite(into.schemas, from.schemas);
  unite(into.silent, from.silent);
  extend(into.groups, from.groups);
  unite(into.present, from.present);
  unite(into.absent, from.absent);
  unite(into.values, from.values);
  unite(into.not_keywords, from.not_keywords);
  extend(into.not_values, from.not_values);
  extend(into.items, from.items);
  extend(into.some_item, from.some_item);
  extend(into.every_item, from.every_item);
  extend(into.undecided, from.undecided);
  into.min_properties = std::max(into.min_properties, from.min_properties);
  into.max_properties = std::min(into.max_properties, from.max_properties);
  into.min_items = std::max(into.min_items, from.min_items);
  into.max_items = std::min(into.max_items, from.max_items);
  if (into.types == kObject && have_common(into.present, into.absent)) return false;
  return into.types != 0;
}

}  // namespace

void Disjuncts::check_size(const List& list) const {
  if (list.size() > limits_.disjuncts) {
    throw GrammarFailure(GrammarErrorKind::limit,
                         fmt::format("the schema has more than {} alternatives once its parts are "
                                     "merged",
                                     limits_.disjuncts));
  }
}

void Disjuncts::append(List& to, List from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

Disjuncts::List Disjuncts::product(const List& a, const List& b) {
  List result;
  for (const Disjunct& x : a) {
    for (const Disjunct& y : b) {
      const std::size_t work = 16 + x.present.size() + y.present.size() + x.absent.size() +
                               y.absent.size() + x.values.size() * (1 + y.values.size()) +
                               x.not_values.size() + y.not_values.size();
      meter_.count(static_cast<std::uint32_t>(std::min<std::size_t>(work, 1u << 30)));
      Disjunct both = x;
      if (merge(both, y)) result.push_back(std::move(both));
      check_size(result);
    }
  }
  return result;
}

std::vector<Disjunct> Disjuncts::of(const Conjunction& conjunction) {
  List list{Disjunct{}};
  for (const Signed& what : conjunction) list = product(list, sign(what));
  return list;
}

namespace {

class Opened {
 public:
  Opened(std::set<Signed>& open, Signed what, const std::string& pointer)
      : open_(open), what_(what) {
    if (!open_.insert(what).second) {
      throw GrammarFailure(GrammarErrorKind::syntax, "the schema refers to itself without end",
                           pointer);
    }
    constexpr std::size_t kMaxOpen = 1'000;
    if (open_.size() > kMaxOpen) {
      open_.erase(what);
      throw GrammarFailure(GrammarErrorKind::limit, "the schema's references are nested too deeply",
                           pointer);
    }
  }
  ~Opened() { open_.erase(what_); }

 private:
  std::set<Signed>& open_;
  Signed what_;
};

}  // namespace

Disjuncts::List Disjuncts::holds(SchemaId id) {
  if (const auto known = held_.find(id); known != held_.end()) return known->second;
  List list = expand(id);
  constexpr std::size_t kShort = 16, kMostKept = 20'000;
  if (list.size() <= kShort && held_.size() < kMostKept) held_.emplace(id, list);
  return list;
}

// What allOf and $ref add, each once.
std::vector<SchemaId> Disjuncts::conjoined(const Schema& schema) const {
  std::vector<SchemaId> parts = schema.all_of, targets;
  if (schema.ref) parts.push_back(*schema.ref);
  std::set<SchemaId> seen;
  for (const SchemaId part : parts) {
    SchemaId target = part;
    for (int i = 0; i < 100; ++i) {
      const Schema& at = document_.at(target);
      if (!at.ref || at.keywords != 1) break;
      target = *at.ref;
    }
    if (seen.insert(target).second) targets.push_back(part);
  }
  return targets;
}

Disjuncts::List Disjuncts::expand(SchemaId id) {
  const Schema& schema = document_.at(id);
  if (schema.nothing) return {};
  const Opened opened(open_, {id, false}, schema.pointer);
  Disjunct own = with_types(schema.types);
  own.schemas.push_back(id);
  if (own.types == 0) return {};
  List list{std::move(own)};
  for (const SchemaId part : conjoined(schema)) list = product(list, holds(part));
  if (!schema.any_of.empty()) {
    List any;
    for (const SchemaId part : schema.any_of) append(any, holds(part));
    list = product(list, any);
  }
  if (!schema.one_of.empty()) list = product(list, exactly_one(schema));
  if (schema.negated) list = product(list, fails(*schema.negated));
  if (schema.if_ && (schema.then_ || schema.else_)) list = product(list, condition(schema));
  if (!schema.dependent_required.empty() || !schema.dependent_schemas.empty()) {
    list = product(list, dependencies(schema));
  }
  if (schema.unevaluated_properties || schema.unevaluated_items) {
    for (Disjunct& disjunct : list) {
      std::vector<SchemaId> members = disjunct.schemas;
      std::erase_if(members, [&](SchemaId member) {
        return std::find(disjunct.silent.begin(), disjunct.silent.end(), member) !=
               disjunct.silent.end();
      });
      disjunct.groups.push_back({id, std::move(members)});
    }
  }
  return list;
}

Disjuncts::List Disjuncts::condition(const Schema& schema) {
  const auto branch = [&](List when, const std::optional<SchemaId>& what) {
    return what ? product(when, holds(*what)) : when;
  };
  List list = branch(holds(*schema.if_), schema.then_);
  append(list, branch(fails(*schema.if_), schema.else_));
  return list;
}

Disjuncts::List Disjuncts::dependencies(const Schema& schema) {
  List list{Disjunct{}};
  const auto add = [&](const std::string& key, List when_present) {
    Disjunct without;
    without.absent.push_back(key);
    Disjunct with = with_types(kObject);
    with.present.push_back(key);
    List either{without};
    append(either, product({with}, when_present));
    list = product(list, either);
  };
  for (const auto& [key, needed] : schema.dependent_required) {
    Disjunct all = with_types(kObject);
    all.present = needed;
    add(key, {all});
  }
  for (const auto& [key, id] : schema.dependent_schemas) add(key, holds(id));
  return list;
}

Disjuncts::List Disjuncts::exactly_one(const Schema& schema) {
  List result;
  for (std::size_t i = 0; i < schema.one_of.size(); ++i) {
    List one = holds(schema.one_of[i]);
    for (std::size_t j = 0; j < schema.one_of.size(); ++j) {
      if (i != j && !one.empty() && !excludes(schema.one_of[j], one)) {
        one = product(one, fails(schema.one_of[j]));
      }
    }
    append(result, std::move(one));
  }
  return result;
}

// True when no value that is written for one of `others` fits the schema as well.
bool Disjuncts::excludes(SchemaId id, const List& others) {
  const List list = holds(id);
  for (const Disjunct& other : others) {
    for (const Disjunct& disjunct : list) {
      meter_.count(16);
      if (!apart(other, disjunct, 0)) return false;
    }
  }
  return true;
}

namespace {

struct Keys {
  bool closed = false;
  std::vector<std::string> required;
  std::vector<std::pair<std::string, SchemaId>> properties;
};

Keys keys_of(const SchemaDocument& document, const Disjunct& disjunct) {
  Keys keys;
  keys.required = disjunct.present;
  bool named = false, open = false, patterns = false;
  for (const SchemaId id : disjunct.schemas) {
    const Schema& schema = document.at(id);
    extend(keys.required, schema.required);
    extend(keys.properties, schema.properties);
    named |= !schema.properties.empty();
    patterns |= !schema.pattern_properties.empty();
    if (schema.additional_properties) {
      open |= !document.at(*schema.additional_properties).nothing;
    }
    open |= schema.unevaluated_properties.has_value();
  }
  keys.closed = named && !open && !patterns;
  return keys;
}

}  // namespace

bool Disjuncts::apart(const Disjunct& closed, const Disjunct& other, int depth) {
  const std::uint8_t types = closed.types & other.types;
  if (types == 0) return true;
  const auto values_of = [&](const Disjunct& disjunct) -> const std::vector<json::value>* {
    for (const SchemaId id : disjunct.schemas) {
      if (document_.at(id).values) return &*document_.at(id).values;
    }
    return nullptr;
  };
  const auto *a = values_of(closed), *b = values_of(other);
  if (a != nullptr && b != nullptr) {
    return std::none_of(a->begin(), a->end(), [&](const json::value& value) {
      return std::any_of(b->begin(), b->end(), [&](const auto& other) {
        meter_.count(8);
        return same_value(value, other);
      });
    });
  }
  if (types != kObject || depth > 3) return false;
  const Keys mine = keys_of(document_, closed), theirs = keys_of(document_, other);
  const auto has = [&](const auto& list, const std::string& key) {
    meter_.count(static_cast<std::uint32_t>(list.size()));
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  const auto declared = [&](const Keys& keys, const std::string& key) {
    meter_.count(static_cast<std::uint32_t>(keys.properties.size()));
    return std::any_of(keys.properties.begin(), keys.properties.end(),
                       [&](const auto& property) { return property.first == key; });
  };
  if (mine.closed) {
    for (const std::string& key : theirs.required) {
      if (!declared(mine, key) && !has(mine.required, key)) return true;
    }
  }
  for (const auto& [key, id] : mine.properties) {
    if (!has(mine.required, key) && !has(theirs.required, key)) continue;
    meter_.count(static_cast<std::uint32_t>(theirs.properties.size()));
    for (const auto& [their_key, their_id] : theirs.properties) {
      if (their_key != key) continue;
      const List ours = holds(id), others = holds(their_id);
      bool all_apart = true;
      for (const Disjunct& x : ours) {
        for (const Disjunct& y : others) all_apart = all_apart && apart(x, y, depth + 1);
      }
      if (all_apart) return true;
    }
  }
  return false;
}

}  // namespace quire::structured
