#include "engine/structured/schema/object_rules.h"

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
      const std::pair entry(pattern,
                            schema.pointer + "/patternProperties/" + escaped_pointer(pattern));
      if (has(patterns_, entry)) continue;
      patterns_.push_back(entry);
      if (patterns_.size() <= kMostPatterns) continue;
      throw GrammarFailure(GrammarErrorKind::limit,
                           "\"patternProperties\" is supported for up to 6 patterns", entry.second);
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
    const ExprId value = possible ? values_.value(value_of(name)) : values_.rules_.nothing();
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

// Does the schema itself say what the key's value is? `key` null: one that is not listed and
// matches the patterns of `matched`.
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

// Adds what a schema says of a key that matches the patterns of `matched`, and of which its
// "properties" say something, or nothing (`is_listed`): its patterns' parts, or where neither says
// anything its additionalProperties.
void ObjectRules::add_matched_parts(Conjunction& value, const Schema& schema, bool is_listed,
                                    const std::vector<bool>& matched) const {
  for (const auto& [pattern, part] : schema.pattern_properties) {
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (patterns_[i].first != pattern || !matched[i]) continue;
      ValueRules::add(value, {part, false});
      is_listed = true;
    }
  }
  if (!is_listed && schema.additional_properties)
    ValueRules::add(value, {*schema.additional_properties, false});
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
    values_.meter_.count(static_cast<std::uint32_t>(parts.size()));
    bool listed = false;
    for (const auto& [owner, part] : parts) {
      if (owner != id) continue;
      ValueRules::add(value, {part, false});
      listed = true;
    }
    add_matched_parts(value, values_.document_.at(id), listed, matched);
  }
  if (const auto said = said_.find(key); said != said_.end())
    for (const Signed& what : said->second) ValueRules::add(value, what);
  add_unevaluated(value, &key, matched);
  return value;
}

// What the value of a key must be that is not listed and matches the patterns of `matched`.
Conjunction ObjectRules::free_value(const std::vector<bool>& matched) {
  Conjunction value;
  for (const SchemaId id : what_.schemas)
    add_matched_parts(value, values_.document_.at(id), false, matched);
  add_unevaluated(value, nullptr, matched);
  return value;
}

// The names that a schema of "propertyNames" allows.
RegexId ObjectRules::allowed_names(SchemaId rule) {
  std::vector<RegexId> allowed;
  for (const Disjunct& one : values_.disjuncts_.of({{rule, false}})) {
    if ((one.types & kString) == 0) continue;
    values_.refuse_undecided(one, kString);
    const bool lists_values = std::ranges::any_of(
        one.schemas, [&](SchemaId part) { return values_.document_.at(part).values.has_value(); });
    if (!lists_values) {
      allowed.push_back(values_.string_content(one));
      continue;
    }
    for (const json::value& value : values_.fitting_values(one))
      if (value.is_string()) allowed.push_back(json_spellings(values_.store_, value.get_string()));
  }
  return values_.store_.any_of(std::move(allowed));
}

// Keys that are not listed, by the set of patterns that they match.
void ObjectRules::collect_others() {
  RegexStore& store = values_.store_;
  std::vector<RegexId> every;
  for (const std::string& name : names_) {
    every.push_back(json_spellings(store, name));
  }
  bool any_name = patterns_.empty() && every.empty();
  RegexId names = store.complement(store.any_of(std::move(every)));
  for (const SchemaId id : what_.schemas) {
    const auto& rule = values_.document_.at(id).property_names;
    if (!rule) continue;
    names = store.all_of({names, allowed_names(*rule)});
    any_name = false;
  }
  if (any_name) {
    if (closed()) return;
    Conjunction value = free_value({});
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
    Conjunction value = free_value(matched);
    others_.push_back({store.concat(values_.style_.quoted(content), values_.style_.colon()),
                       values_.value(std::move(value))});
  }
}

}  // namespace quire::structured
