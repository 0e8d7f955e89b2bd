#include "jinja/values/operators.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "jinja/error.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/big_int.h"
#include "jinja/values/dict.h"
#include "jinja/values/object.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

constexpr std::uint64_t kMaxKeyWeight = 1 << 20;

// Exact also where a double cannot hold the integer.
std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is(Kind::real) && b.is(Kind::real)) return a.real() <=> b.real();
  if (b.is(Kind::real)) {
    if (!std::isfinite(b.real())) return 0.0 <=> b.real();
    const std::strong_ordering whole = to_big(a) <=> BigInt::from_real(b.real());
    if (whole != 0) return whole;
    return std::trunc(b.real()) <=> b.real();
  }
  if (a.is(Kind::real)) {
    const std::partial_ordering swapped = compare_numbers(b, a);
    return 0 <=> swapped;
  }
  if (a.is(Kind::big_integer) || b.is(Kind::big_integer)) return to_big(a) <=> to_big(b);
  return as_small(a) <=> as_small(b);
}

bool holds(Order order, std::partial_ordering result) {
  switch (order) {
    case Order::less:
      return result < 0;
    case Order::less_equal:
      return result <= 0;
    case Order::greater:
      return result > 0;
    case Order::greater_equal:
      return result >= 0;
  }
  return false;
}

bool equal_items(const List& a, const List& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.begin(), a.end(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.key);
    return other != nullptr && equal(entry.value, *other);
  });
}

bool ordered_items(Order order, const List& a, const List& b) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(), equal);
  if (x != a.end() && y != b.end()) return ordered(order, *x, *y);
  return holds(order, a.size() <=> b.size());
}

std::string_view sign_of(Order order) {
  switch (order) {
    case Order::less:
      return "<";
    case Order::less_equal:
      return "<=";
    case Order::greater:
      return ">";
    case Order::greater_equal:
      return ">=";
  }
  return "";
}

std::size_t hash_number(const Value& value) {
  if (value.is(Kind::real)) {
    const double real = value.real();
    if (std::trunc(real) != real || std::fabs(real) > 9e18) return std::hash<double>{}(real);
    return std::hash<std::int64_t>{}(std::int64_t(real));
  }
  if (value.is(Kind::big_integer)) return std::hash<double>{}(value.big_integer().to_double());
  const std::int64_t integer = as_small(value);
  return std::abs(double(integer)) > 9e18 ? std::hash<double>{}(double(integer))
                                          : std::hash<std::int64_t>{}(integer);
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
      return "MissingType";
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
    case Kind::big_integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return value.text().safe ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return value.tuple().is_group ? "_GroupTuple" : "tuple";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return value.object()->type_name();
  }
  return "object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean();
    case Kind::integer:
      return value.integer() != 0;
    case Kind::big_integer:
      return true;
    case Kind::real:
      return value.real() != 0;
    case Kind::string:
      return !value.string().empty();
    case Kind::list:
    case Kind::tuple:
      return !value.items().empty();
    case Kind::dict:
      return !value.dict().empty();
    case Kind::object:
      return value.object()->truthy();
  }
  return true;
}

bool is_number(const Value& value) {
  return value.is(Kind::integer) || value.is(Kind::boolean) || value.is(Kind::real) ||
         value.is(Kind::big_integer);
}

bool equal(const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.string() == b.string();
    case Kind::list:
      return a.same_as(b) || equal_items(a.list(), b.list());
    case Kind::tuple:
      return a.same_as(b) || equal_items(a.tuple().items, b.tuple().items);
    case Kind::dict:
      return a.same_as(b) || equal_dicts(a.dict(), b.dict());
    case Kind::object:
      return a.object()->equals(*b.object());
    default:
      return false;
  }
}

std::size_t hash(const Value& value) {
  switch (value.kind()) {
    case Kind::string:
      return std::hash<std::string>{}(value.string());
    case Kind::boolean:
    case Kind::integer:
    case Kind::big_integer:
    case Kind::real:
      return hash_number(value);
    case Kind::tuple: {
      if (value.extent().weight > kMaxKeyWeight)
        fail(ErrorKind::limit, "a tuple too large to be a key");
      std::size_t mixed = 0x345678;
      for (const Value& item : value.tuple().items) mixed = mixed * 1000003 ^ hash(item);
      return mixed;
    }
    case Kind::list:
    case Kind::dict:
      fail(ErrorKind::type, "unhashable type: '" + std::string(type_name(value)) + "'");
    case Kind::object:
      return std::hash<const void*>{}(value.object().get());
    default:
      return std::size_t(value.kind());
  }
}

void fail_undefined(const Value& undefined) {
  const Undefined& why = undefined.why_undefined();
  fail(why.why == Undefined::Why::unsafe ? ErrorKind::security : ErrorKind::undefined,
       why.message());
}

bool ordered(Order order, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (is_number(a) && is_number(b)) return holds(order, compare_numbers(a, b));
  if (a.is_string() && b.is_string()) return holds(order, a.string() <=> b.string());
  if (a.is_sequence() && a.kind() == b.kind()) return ordered_items(order, a.items(), b.items());
  fail(ErrorKind::type, "'" + std::string(sign_of(order)) +
                            "' not supported between instances of '" + std::string(type_name(a)) +
                            "' and '" + std::string(type_name(b)) + "'");
}

}  // namespace quire::jinja
