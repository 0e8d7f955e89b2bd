#pragma once
// What Python does with anything that has items: iterate, index, slice, look for.

#include <cstdint>
#include <memory>
#include <optional>

#include "jinja/values/object.h"
#include "jinja/values/value.h"

namespace quire::jinja {

std::unique_ptr<Iterator> iterate(
    const Value& value);  // fails (type) where the value is not iterable
std::unique_ptr<Iterator> try_iterate(const Value& value);  // null where it is not
List collect(Evaluation& evaluation, const Value& iterable);
std::optional<std::size_t> length(const Value& value);  // empty where Python has no len()
std::size_t required_length(const Value& value);        // fails (type) instead

bool contains(Evaluation& evaluation, const Value& container, const Value& item);
// value[key]; missing where Python raises TypeError, IndexError or KeyError.
Value subscript(const Value& value, const Value& key);

struct Slice {
  Value start;  // each a whole number or none
  Value stop;
  Value step;
};
Value slice(Evaluation& evaluation, const Value& value, const Slice& by);

// The items first, first + step, … that a slice takes of `length` items.
struct SliceRange {
  std::int64_t first;
  std::int64_t step;
  std::int64_t count;
};
SliceRange resolve(const Slice& by, std::int64_t length);

}  // namespace quire::jinja
