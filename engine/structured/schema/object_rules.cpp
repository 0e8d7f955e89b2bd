#include "engine/structured/schema/object_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "engine/structured/schema/schema_fields.h"

namespace quire::structured {
namespace {

template <class List, class Item>
bool has(const List& list, const Item& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

constexpr std::size_t kMostPatterns = 6;
constexpr std::size_t kMostFree = 4;

}  // namespace

ExprId ObjectRules::build() {
  min_ = what_.min_properties;
  max_ = what_.max_properties;
  for (const SchemaId id : what_.schemas) {
    const Schema& schema = values_.document_.at(id);
    min_ = std::max(min_, schema.min_properties.value_or(0));
    max_ = std::min(max_, schema.max_properties.value_or(kUnbounded));
    for (const auto& [pattern, unused] : schema.pattern_properties) {
      const std::pair entry(pattern, schema.pointer + "/patternProperties/" + escaped_pointer(pattern));
      if (has(patterns_, entry)) continue;
      patterns_.push_back(entry);
      if (patterns_.size() <= kMostPatterns) continue;
      throw GrammarFailure(GrammarErrorKind::limit,
                           "\"patternProperties\" is supported for up to 6 patterns",
                           entry.second);
    }
  }
  collect_keys();
  for (const auto* list : {&keys_, &free_}) {
    for (const Key& key : *list) {
      const Rules::Expr& value = values_.rules_.expr(key.value);
      const bool never = value.kind == Rules::Kind::lexeme && value.what == kNothing;
      if (key.required && never) return values_.rules_.nothing();
    }
  }
  collect_others();
  if (max_ < min_) return values_.rules_.nothing();
  values_.refuse_undecided(what_, kObject);
  return graph();
}

// Without a word about additionalProperties an object that names its properties has no others.
bool ObjectRules::closed() const {
  bool named = false;
  for (const SchemaId id : what_.schemas) {
    const Schema& schema = values_.document_.at(id);
    if (schema.additional_properties || schema.unevaluated_properties) return false;
    named |= !schema.properties.empty() || !schema.pattern_properties.empty();
  }
  return named;
}

void ObjectRules::collect_keys() {
  using Names = std::unordered_set<std::string>;
  Names known;
  const auto add = [&](const std::string& key) {
    values_.meter_.count(2);
    if (known.insert(key).second) names_.push_back(key);
  };
  std::vector<std::string> required = what_.present;
  for (const SchemaId id : what_.schemas) {
    const Schema& schema = values_.document_.at(id);
    for (const auto& [key, part] : schema.properties) {
      add(key);
      parts_[key].emplace_back(id, part);
    }
    required.insert(required.end(), schema.required.begin(), schema.required.end());
  }
  const std::size_t listed = names_.size();
  for (const auto& [key, what] : what_.values) {
    add(key);
    said_[key].push_back(what);
  }
  std::ranges::for_each(required, add);
  std::ranges::for_each(what_.absent, add);
  const Names wanted(required.begin(), required.end());
  const Names absent(what_.absent.begin(), what_.absent.end());
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const std::string& name = names_[i];
    values_.meter_.count(16 + static_cast<std::uint32_t>(what_.schemas.size()));
    const bool needed = wanted.contains(name);
    const bool possible = !absent.contains(name) && name_fits(name);
    const ExprId value =
        possible ? values_.value(value_of(name)) : values_.rules_.nothing();
    const Rules::Expr& expr = values_.rules_.expr(value);
    const bool never = expr.kind == Rules::Kind::lexeme && expr.what == kNothing;
    const bool free = i >= listed && needed && free_.size() < kMostFree;
    if (needed || !never) (free ? free_ : keys_).push_back({name, needed, value});
  }
}

bool ObjectRules::name_fits(const std::string& key) {
  return std::all_of(what_.schemas.begin(), what_.schemas.end(), [&](SchemaId id) {
    const auto& names = values_.document_.at(id).property_names;
    return !names || values_.check_.fits(*names, json::value(key));
  });
}

// Does the schema itself say what the key's value is? `key` null: one that is not listed and matches
// the patterns of `matched`.
bool ObjectRules::declares(const Schema& schema, const std::string* key,
                           const std::vector<bool>& matched) {
  if (schema.additional_properties) return true;
  values_.meter_.count(static_cast<std::uint32_t>(schema.properties.size()));
  if (key != nullptr && std::any_of(schema.properties.begin(), schema.properties.end(),
                                    [&](const auto& property) { return property.first == *key; })) {
    return true;
  }
  for (const auto& [pattern, id] : schema.pattern_properties) {
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (patterns_[i].first == pattern && matched[i]) return true;
    }
  }
  return false;
}

void ObjectRules::add_unevaluated(Conjunction& value, const std::string* key,
                                  const std::vector<bool>& matched) {
  for (const auto& group : what_.groups) {
    const auto& rest = values_.document_.at(group.owner).unevaluated_properties;
    if (!rest) continue;
    const bool seen = std::any_of(group.members.begin(), group.members.end(), [&](SchemaId id) {
      const Schema& schema = values_.document_.at(id);
      return declares(schema, key, matched) ||
             (id != group.owner && schema.unevaluated_properties.has_value());
    });
    if (!seen) ValueRules::add(value, {*rest, false});
  }
}

Conjunction ObjectRules::value_of(const std::string& key) {
  Conjunction value;
  std::vector<bool> matched;
  for (const auto& [pattern, pointer] : patterns_) {
    matched.push_back(values_.check_.matches(pattern, key, pointer));
  }
  const auto found = parts_.find(key);
  const OwnedParts none, &parts = found == parts_.end() ? none : found->second;
  for (const SchemaId id : what_.schemas) {
    const Schema& schema = values_.document_.at(id);
    values_.meter_.count(static_cast<std::uint32_t>(parts.size()));
    bool listed = false;
    for (const auto& [owner, part] : parts) {
      if (owner != id) continue;
      ValueRules::add(value, {part, false});
      listed = true;
    }
    for (const auto& [pattern, part] : schema.pattern_properties) {
      for (std::size_t i = 0; i < patterns_.size(); ++i) {
        if (patterns_[i].first != pattern || !matched[i]) continue;
        ValueRules::add(value, {part, false});
        listed = true;
      }
    }
    if (!listed && schema.additional_properties) {
      ValueRules::add(value, {*schema.additional_properties, false});
    }
  }
  if (const auto said = said_.find(key); said != said_.end())
    for (const Signed& what : said->second) ValueRules::add(value, what);
  add_unevaluated(value, &key, matched);
  return value;
}

// Keys that are not listed, by the set of patterns that they match.
void ObjectRules::collect_others() {
  RegexStore& store = values_.store_;
  std::vector<RegexId> every;
  for (const std::string& name : names_) {
    every.push_back(json_spellings(store, name));
  }
  const bool free_keys = patterns_.empty() && every.empty();
  RegexId names = store.complement(store.any_of(std::move(every)));
  bool named = false;
  for (const SchemaId id : what_.schemas) {
    const auto& rule = values_.document_.at(id).property_names;
    if (!rule) continue;
    std::vector<RegexId> allowed;
    for (const Disjunct& one : values_.disjuncts_.of({{*rule, false}})) {
      if ((one.types & kString) == 0) continue;
      Disjunct copy = one;
      values_.refuse_undecided(one, kString);
      bool listed = false;
      for (const SchemaId part : one.schemas) listed |= values_.document_.at(part).values.has_value();
      if (listed) {
        for (const json::value& value : values_.fitting_values(one)) {
          if (value.is_string()) allowed.push_back(json_spellings(store, value.get_string()));
        }
      } else {
        allowed.push_back(values_.string_content(one));
      }
    }
    names = store.all_of({names, store.any_of(std::move(allowed))});
    named = true;
  }
  if (free_keys && !named) {
    if (closed()) return;
    Conjunction value;
    for (const SchemaId id : what_.schemas) {
      const auto& rest = values_.document_.at(id).additional_properties;
      if (rest) ValueRules::add(value, {*rest, false});
    }
    add_unevaluated(value, nullptr, {});
    others_.push_back({store.concat(values_.style_.any_string(), values_.style_.colon()),
                       values_.value(std::move(value))});
    return;
  }
  names = store.all_of({names, values_.style_.characters()});
  for (std::size_t set = 0; set < std::size_t{1} << patterns_.size(); ++set) {
    std::vector<RegexId> parts{names};
    std::vector<bool> matched;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      const RegexId pattern = values_.pattern(patterns_[i].first, patterns_[i].second);
      matched.push_back(set >> i & 1);
      parts.push_back(matched[i] ? pattern : store.complement(pattern));
    }
    if (set == 0 && closed()) continue;
    const RegexId content = store.all_of(std::move(parts));
    if (!store.alive(content)) continue;
    Conjunction value;
    for (const SchemaId id : what_.schemas) {
      const Schema& schema = values_.document_.at(id);
      bool listed = false;
      for (const auto& [pattern, part] : schema.pattern_properties) {
        for (std::size_t i = 0; i < patterns_.size(); ++i) {
          if (patterns_[i].first != pattern || !matched[i]) continue;
          ValueRules::add(value, {part, false});
          listed = true;
        }
      }
      if (!listed && schema.additional_properties) {
        ValueRules::add(value, {*schema.additional_properties, false});
      }
    }
    add_unevaluated(value, nullptr, matched);
    others_.push_back({store.concat(values_.style_.quoted(content), values_.style_.colon()),
                       values_.value(std::move(value))});
  }
}

// Places, for a position and c members written: `fresh`, nothing written yet; `behind`, a member written;
// `wanted`, a comma written, so that a member must come. Positions are the listed keys behind us, and
// once these are done the set of free keys that are written.
ExprId ObjectRules::graph() {
  Rules& rules = values_.rules_;
  auto needed = static_cast<std::uint32_t>(free_.size());
  for (const Key& key : keys_) needed += key.required ? 1 : 0;
  const auto listed = static_cast<std::uint32_t>(keys_.size());
  const std::uint32_t sets = std::uint32_t{1} << free_.size();
  const bool may_exceed = max_ < listed + free_.size() || !others_.empty();
  const std::uint32_t most = max_ != kUnbounded && may_exceed ? max_ : kUnbounded;
  const std::uint32_t least = min_ > needed ? min_ : 0;
  // Counts above `cap` are all alike.
  const std::uint32_t cap = most != kUnbounded ? most : least;
  const std::uint64_t places = (std::uint64_t{listed} + sets) * (std::uint64_t{cap} + 1) * 3 + 2;
  if (places > values_.limits_.grammar_states) {
    throw GrammarFailure(GrammarErrorKind::limit,
                         fmt::format("members are counted (minProperties, maxProperties) up to about {} here, not {}",
                                     values_.limits_.grammar_states / 3 / (listed + sets), cap),
                         values_.document_.at(what_.schemas.empty() ? 0 : what_.schemas[0]).pointer);
  }
  enum Role : std::uint32_t { fresh, behind, wanted };
  const auto place = [&](Role role, std::uint32_t i, std::uint32_t c) {
    return 2 + (i * (cap + 1) + c) * 3 + role;
  };
  std::vector<Rules::Arc> arcs{{0, place(fresh, 0, 0), rules.lexeme(values_.style_.open('{'))}};
  const ExprId comma = rules.lexeme(values_.style_.comma());
  const ExprId closing = rules.lexeme(values_.style_.close('}'));
  const ExprId bare = rules.lexeme(values_.store_.literal("}"));
  const auto member = [&](const Key& key) {
    return rules.sequence({rules.lexeme(values_.style_.key(key.name)), key.value});
  };
  std::vector<ExprId> members, free_members, other_members;
  for (const Key& key : keys_) members.push_back(member(key));
  for (const Key& key : free_) free_members.push_back(member(key));
  for (const Others& other : others_) {
    other_members.push_back(rules.sequence({rules.solid(other.key), other.value}));
  }
  const ExprId other = rules.choice(other_members);
  std::vector<bool> can_end(listed + sets, false);  // nothing that is required is missing
  can_end[listed + sets - 1] = true;
  if (free_.empty()) {
    for (std::uint32_t i = listed; i-- > 0;) can_end[i] = can_end[i + 1] && !keys_[i].required;
  }
  for (std::uint32_t i = 0; i < listed + sets; ++i) {
    for (std::uint32_t c = 0; c <= cap; ++c) {
      const std::uint32_t more = std::min(c + 1, cap);
      const bool full = most != kUnbounded && c >= most;
      for (const Role role : {fresh, wanted}) {
        const std::uint32_t here = place(role, i, c);
        if (i < listed) {
          if (!full) arcs.push_back({here, place(behind, i + 1, more), members[i]});
          if (!keys_[i].required) arcs.push_back({here, place(role, i + 1, c), rules.empty()});
          continue;
        }
        if (full) continue;
        if (!others_.empty()) arcs.push_back({here, place(behind, i, more), other});
        for (std::uint32_t k = 0; k < free_.size(); ++k) {
          const std::uint32_t bit = std::uint32_t{1} << k;
          if ((i - listed) & bit) continue;
          arcs.push_back({here, place(behind, listed + ((i - listed) | bit), more), free_members[k]});
        }
      }
      if (!full) arcs.push_back({place(behind, i, c), place(wanted, i, c), comma});
      if (c < least || !can_end[i]) continue;
      arcs.push_back({place(behind, i, c), 1, closing});
      if (i >= listed && c == 0) arcs.push_back({place(fresh, i, c), 1, bare});
    }
  }
  return rules.graph(static_cast<std::uint32_t>(places), std::move(arcs));
}

}  // namespace quire::structured
