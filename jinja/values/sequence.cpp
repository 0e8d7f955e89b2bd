#include "jinja/values/sequence.h"

#include <algorithm>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/dict.h"
#include "jinja/values/operators.h"
#include "jinja/values/search.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

class ItemIterator : public Iterator {
 public:
  explicit ItemIterator(Value sequence) : sequence_(std::move(sequence)) {}
  bool next(Value& item) override {
    if (at_ == sequence_.items().size()) return false;
    item = sequence_.items()[at_++];
    return true;
  }

 private:
  Value sequence_;
  std::size_t at_ = 0;
};

class KeyIterator : public Iterator {
 public:
  explicit KeyIterator(Value dict) : dict_(std::move(dict)) {}
  bool next(Value& item) override {
    if (at_ == dict_.dict().size()) return false;
    item = dict_.dict()[at_++].key;
    return true;
  }

 private:
  Value dict_;
  std::size_t at_ = 0;
};

class CharacterIterator : public Iterator {
 public:
  explicit CharacterIterator(Value text) : text_(std::move(text)) {}
  bool next(Value& item) override {
    if (at_ == text_.string().size()) return false;
    const std::size_t begin = at_;
    unicode::next(text_.string(), at_);
    item = Value(text_.string().substr(begin, at_ - begin), text_.text().safe);
    return true;
  }

 private:
  Value text_;
  std::size_t at_ = 0;
};

class EmptyIterator : public Iterator {
 public:
  bool next(Value&) override { return false; }
};

Value character_at(const Value& text, std::int64_t index) {
  const std::string& utf8 = text.string();
  const std::size_t begin = text.text().length() == utf8.size()
                                ? std::size_t(index)
                                : unicode::skip(utf8, std::size_t(index));
  std::size_t end = begin;
  unicode::next(utf8, end);
  return Value(utf8.substr(begin, end - begin), text.text().safe);
}

Value slice_text(Evaluation& evaluation, const Value& text, const Slice& by) {
  const SliceRange range = resolve(by, std::int64_t(text.text().length()));
  const std::string& utf8 = text.string();
  if (range.count == 0) return Value(std::string(), text.text().safe);
  evaluation.charge(utf8.size());
  if (range.step == 1) {
    const bool ascii = text.text().length() == utf8.size();
    const std::size_t begin =
        ascii ? std::size_t(range.first) : unicode::skip(utf8, std::size_t(range.first));
    const std::size_t end = ascii ? begin + std::size_t(range.count)
                                  : unicode::skip(utf8, std::size_t(range.count), begin);
    return Value(utf8.substr(begin, end - begin), text.text().safe);
  }
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < utf8.size(); unicode::next(utf8, i)) starts.push_back(i);
  std::string out;
  for (std::int64_t i = 0; i < range.count; ++i) {
    std::size_t position = starts[std::size_t(range.first + i * range.step)];
    unicode::append(out, unicode::next(utf8, position));
  }
  return Value(std::move(out), text.text().safe);
}

Value slice_items(Evaluation& evaluation, const Value& sequence, const Slice& by) {
  const List& items = sequence.items();
  const SliceRange range = resolve(by, std::int64_t(items.size()));
  evaluation.charge(std::uint64_t(range.count) * sizeof(Value));
  List out;
  out.reserve(std::size_t(range.count));
  for (std::int64_t i = 0; i < range.count; ++i)
    out.push_back(items[std::size_t(range.first + i * range.step)]);
  return sequence.is(Kind::list) ? Value(std::move(out)) : Value(Tuple{std::move(out)});
}

[[noreturn]] void fail_not(const Value& value, const char* what) {
  fail(ErrorKind::type, "'" + std::string(type_name(value)) + "' object is not " + what);
}

bool contains_item(Evaluation& evaluation, const Value& container, const Value& item) {
  const auto items = try_iterate(container);
  if (!items) {
    fail(ErrorKind::type,
         "argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
  const std::uint64_t weight = item.extent().weight;
  for (Value candidate; items->next(candidate);) {
    evaluation.step();
    evaluation.charge(std::min(weight, candidate.extent().weight));
    if (candidate.same_as(item) || equal(candidate, item)) return true;
  }
  return false;
}

// An index or its default; Python clamps to 64 bits.
std::int64_t slice_index(const Value& value, std::int64_t otherwise) {
  if (value.is_none()) return otherwise;
  if (value.is_undefined() || !is_integral(value)) {
    fail(ErrorKind::type, "slice indices must be integers or None or have an __index__ method");
  }
  if (value.is(Kind::big_integer))
    return value.big_integer().negative() ? INT64_MIN / 2 : INT64_MAX / 2;
  return std::clamp(as_small(value), INT64_MIN / 2, INT64_MAX / 2);
}

}  // namespace

std::unique_ptr<Iterator> try_iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return std::make_unique<EmptyIterator>();
    case Kind::string:
      return std::make_unique<CharacterIterator>(value);
    case Kind::list:
    case Kind::tuple:
      return std::make_unique<ItemIterator>(value);
    case Kind::dict:
      return std::make_unique<KeyIterator>(value);
    case Kind::object:
      return value.object()->iterate();
    default:
      return nullptr;
  }
}

std::unique_ptr<Iterator> iterate(const Value& value) {
  auto iterator = try_iterate(value);
  if (!iterator) fail_not(value, "iterable");
  return iterator;
}

List collect(Evaluation& evaluation, const Value& iterable) {
  List items;
  const auto iterator = iterate(iterable);
  for (Value item; iterator->next(item);) {
    evaluation.step();
    evaluation.charge(sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

std::optional<std::size_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return value.text().length();
    case Kind::list:
    case Kind::tuple:
      return value.items().size();
    case Kind::dict:
      return value.dict().size();
    case Kind::object:
      return value.object()->length();
    default:
      return {};
  }
}

std::size_t required_length(const Value& value) {
  const auto size = length(value);
  if (!size)
    fail(ErrorKind::type, "object of type '" + std::string(type_name(value)) + "' has no len()");
  return *size;
}

bool contains(Evaluation& evaluation, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail(ErrorKind::type,
           "'in <string>' requires string as left operand, not " + std::string(type_name(item)));
    }
    evaluation.charge(container.string().size() + item.string().size());
    return find_text(container.string(), item.string()) != std::string::npos;
  }
  if (container.is(Kind::dict)) {
    evaluation.charge(item.extent().weight);
    return container.dict().find(item) != nullptr;
  }
  if (container.is(Kind::object)) {
    if (const auto known = container.object()->contains(item)) return *known;
  }
  return contains_item(evaluation, container, item);
}

Value subscript(const Value& value, const Value& key) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::dict)) {
    if (key.is(Kind::list) || key.is(Kind::dict)) return Value::missing();
    const Value* found = key.is_string() ? value.dict().find(std::string_view(key.string()))
                                         : value.dict().find(key);
    return found == nullptr ? Value::missing() : *found;
  }
  if (value.is(Kind::object)) return value.object()->item(key);
  if (!value.is_string() && !value.is_sequence()) return Value::missing();
  if (!key.is(Kind::integer) && !key.is(Kind::boolean)) return Value::missing();
  const auto size = std::int64_t(*length(value));
  const std::int64_t index = as_small(key) < 0 ? as_small(key) + size : as_small(key);
  if (index < 0 || index >= size) return Value::missing();
  return value.is_string() ? character_at(value, index) : value.items()[std::size_t(index)];
}

SliceRange resolve(const Slice& by, std::int64_t length) {
  const std::int64_t step = slice_index(by.step, 1);
  if (step == 0) fail(ErrorKind::value, "slice step cannot be zero");
  const std::int64_t lowest = step < 0 ? -1 : 0;
  const std::int64_t highest = step < 0 ? length - 1 : length;
  const auto clamp = [&](std::int64_t index) {
    return std::clamp(index < 0 ? index + length : index, lowest, highest);
  };
  const std::int64_t start =
      by.start.is_none() ? (step < 0 ? highest : lowest) : clamp(slice_index(by.start, 0));
  const std::int64_t stop =
      by.stop.is_none() ? (step < 0 ? lowest : highest) : clamp(slice_index(by.stop, 0));
  const std::int64_t span = step < 0 ? start - stop : stop - start;
  const std::int64_t stride = step < 0 ? -step : step;
  return {start, step, span > 0 ? (span - 1) / stride + 1 : 0};
}

Value slice(Evaluation& evaluation, const Value& value, const Slice& by) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_string()) return slice_text(evaluation, value, by);
  if (value.is_sequence()) return slice_items(evaluation, value, by);
  if (value.is(Kind::object)) {
    Value sliced = value.object()->slice(by);
    if (!sliced.is(Kind::missing)) return sliced;
  }
  if (value.is(Kind::dict)) fail(ErrorKind::type, "unhashable type: 'slice'");
  fail_not(value, "subscriptable");
}

}  // namespace quire::jinja
