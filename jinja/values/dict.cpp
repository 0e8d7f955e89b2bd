#include "jinja/values/dict.h"

#include <algorithm>
#include <functional>

#include "jinja/error.h"
#include "jinja/values/operators.h"

namespace quire::jinja {
namespace {

constexpr std::size_t kLinear = 8;  // entries up to which looking at each is fastest

}  // namespace

Dict::Dict(std::vector<std::pair<std::string, Value>> entries) {
  for (auto& [key, value] : entries) set(Value(std::move(key)), std::move(value));
}

void Dict::set(Value key, Value value) {
  extent_.contain(key.extent());
  extent_.contain(value.extent());
  const std::size_t at = position(key);
  if (at < entries_.size()) {
    entries_[at].value = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  if (entries_.size() > kLinear) insert_index(entries_.size() - 1);
}

bool Dict::erase(std::string_view key) {
  const Value* found = find(key);
  if (found == nullptr) return false;
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& e) { return &e.value == found; });
  entries_.erase(at);
  buckets_.clear();
  if (entries_.size() > kLinear) insert_index(entries_.size() - 1);
  return true;
}

const Value* Dict::find(const Value& key) const {
  const std::size_t at = position(key);
  return at < entries_.size() ? &entries_[at].value : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto is_it = [key](const Entry& entry) {
    return entry.key.is_string() && entry.key.string() == key;
  };
  if (buckets_.empty()) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), is_it);
    return found == entries_.end() ? nullptr : &found->value;
  }
  const std::size_t mask = buckets_.size() - 1;
  const std::size_t first = std::hash<std::string_view>{}(key);  // as hash() of a text
  for (std::size_t bucket = first & mask; buckets_[bucket] != 0; bucket = (bucket + 1) & mask) {
    const Entry& entry = entries_[buckets_[bucket] - 1];
    if (is_it(entry)) return &entry.value;
  }
  return nullptr;
}

std::size_t Dict::position(const Value& key) const {
  const std::size_t key_hash = hash(key);  // first of all: refuses what cannot be a key
  if (buckets_.empty()) {
    std::size_t at = 0;
    while (at < entries_.size() && !equal(entries_[at].key, key)) ++at;
    return at;
  }
  const std::size_t mask = buckets_.size() - 1;
  for (std::size_t bucket = key_hash & mask; buckets_[bucket] != 0; bucket = (bucket + 1) & mask) {
    const std::size_t at = buckets_[bucket] - 1;
    if (equal(entries_[at].key, key)) return at;
  }
  return entries_.size();
}

// Half of the buckets stay free; growing indexes all entries anew.
void Dict::insert_index(std::size_t at) {
  std::size_t first = at;
  if (buckets_.size() < 2 * entries_.size()) {
    std::size_t size = 4 * kLinear;
    while (size < 4 * entries_.size()) size *= 2;
    buckets_.assign(size, 0);
    first = 0;
  }
  const std::size_t mask = buckets_.size() - 1;
  for (std::size_t i = first; i <= at; ++i) {
    std::size_t bucket = hash(entries_[i].key) & mask;
    while (buckets_[bucket] != 0) bucket = (bucket + 1) & mask;
    buckets_[bucket] = std::uint32_t(i + 1);
  }
}

}  // namespace quire::jinja
