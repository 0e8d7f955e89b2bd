#pragma once
// Python's dict: keys in the order they were first set, equal keys by value (1, 1.0 and true are
// one key).

#include <cstdint>
#include <string_view>
#include <vector>

#include "jinja/values/value.h"

namespace quire::jinja {

class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };

  Dict() = default;
  explicit Dict(std::vector<std::pair<std::string, Value>> entries);

  void set(Value key, Value value);  // an unhashable key throws TemplateError (type)
  void set(std::string_view key, Value value) { set(Value(key), std::move(value)); }
  bool erase(std::string_view key);
  // Null where absent; an unhashable key throws as in set().
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  std::size_t size() const { return entries_.size(); }
  const Extent& extent() const { return extent_; }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  const Entry& operator[](std::size_t i) const { return entries_[i]; }

 private:
  std::size_t position(const Value& key) const;  // size() where absent
  void insert_index(std::size_t at);

  std::vector<Entry> entries_;
  Extent extent_{1, 1};
  // Open addressing over hashes, entry + 1; empty while the dict is small.
  std::vector<std::uint32_t> buckets_;
};

}  // namespace quire::jinja
