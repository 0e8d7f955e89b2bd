#include "jinja/values/value.h"

#include <algorithm>

#include "jinja/error.h"
#include "jinja/values/big_int.h"
#include "jinja/values/dict.h"
#include "jinja/values/object.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

Extent extent_around(const List& items) {
  Extent extent{1, 1};
  for (const Value& item : items) extent.contain(item.extent());
  return extent;
}

}  // namespace

void Extent::contain(const Extent& part) {
  nesting = std::max(nesting, part.nesting + 1);
  if (nesting > kMaxNesting)
    fail(ErrorKind::recursion, "maximum recursion depth exceeded: nested too deeply");
  if (__builtin_add_overflow(weight, part.weight, &weight)) weight = UINT64_MAX;
}

std::string Undefined::message() const {
  const std::string object = owner == "NoneType" ? "None" : owner + " object";
  switch (why) {
    case Why::variable:
      return "'" + name + "' is undefined";
    case Why::attribute:
      return "'" + object + "' has no attribute '" + name + "'";
    case Why::element:
      return object + " has no element " + name;
    case Why::unsafe:
      return "access to attribute '" + name + "' of '" + owner + "' object is unsafe.";
    case Why::other:
      return name;
  }
  return name;
}

std::size_t Text::length() const {
  std::size_t length = length_.load(std::memory_order_relaxed);
  if (length == kUncounted) length_.store(length = unicode::count(utf8), std::memory_order_relaxed);
  return length;
}

ListBox::ListBox(List list) : items(std::move(list)), extent(extent_around(items)) {}
TupleBox::TupleBox(Tuple t) : tuple(std::move(t)), extent(extent_around(tuple.items)) {}

Value::Value(std::string text, bool safe)
    : data_(std::make_shared<const Text>(std::move(text), safe)) {}
Value::Value(List items) : data_(std::make_shared<const ListBox>(std::move(items))) {}
Value::Value(Tuple items) : data_(std::make_shared<const TupleBox>(std::move(items))) {}
Value::Value(Dict entries) : data_(std::make_shared<const Dict>(std::move(entries))) {}

Value::Value(BigInt value) {
  if (value.fits_int64()) {
    data_ = value.to_int64();
  } else {
    data_ = std::make_shared<const BigInt>(std::move(value));
  }
}

Value Value::missing() {
  Value value;
  value.data_ = Missing{};
  return value;
}

Value Value::undefined(Undefined why) {
  Value value;
  value.data_ = std::make_shared<const Undefined>(std::move(why));
  return value;
}

bool Value::same_as(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::missing:
    case Kind::none:
      return true;
    case Kind::boolean:
      return boolean() == other.boolean();
    case Kind::integer:
      return integer() == other.integer();
    case Kind::real:
      return real() == other.real();
    case Kind::string:
      return string() == other.string();
    default:
      return data_ == other.data_;
  }
}

Extent Value::extent() const {
  switch (kind()) {
    case Kind::string:
      return {0, string().size() + 1};
    case Kind::list:
      return std::get<ListRef>(data_)->extent;
    case Kind::tuple:
      return std::get<TupleRef>(data_)->extent;
    case Kind::dict:
      return dict().extent();
    case Kind::object:
      return object()->extent();
    default:
      return {};
  }
}

}  // namespace quire::jinja
