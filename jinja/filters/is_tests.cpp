#include "jinja/filters/is_tests.h"

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/filters.h"
#include "jinja/values/attributes.h"
#include "jinja/values/functions.h"
#include "jinja/values/markup.h"
#include "jinja/values/methods.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;
using Subject = const Value&;

void no_arguments(Arguments& arguments) { bind("test", arguments, {}, 0); }

Value argument(Arguments& arguments) { return bind("test", arguments, {"other"}, 1)[0]; }

template <bool (*predicate)(const Value&)>
bool test_kind(Evaluation&, Subject subject, Arguments& arguments) {
  no_arguments(arguments);
  return predicate(subject);
}

bool is_defined(Subject value) { return !value.is_undefined(); }
bool is_undefined(Subject value) { return value.is_undefined(); }
bool is_none(Subject value) { return value.is_none(); }
bool is_boolean(Subject value) { return value.is(Kind::boolean); }
bool is_true(Subject value) { return value.is(Kind::boolean) && value.boolean(); }
bool is_false(Subject value) { return value.is(Kind::boolean) && !value.boolean(); }
bool is_whole(Subject value) { return value.is(Kind::integer) || value.is(Kind::big_integer); }
bool is_float(Subject value) { return value.is(Kind::real); }
bool is_text(Subject value) { return value.is_string(); }
bool is_mapping(Subject value) { return value.is(Kind::dict); }
bool is_indexable(Subject value) {
  if (value.is(Kind::object)) return value.object()->has_items() && value.object()->length();
  return length(value).has_value();
}
bool is_iterable(Subject value) { return try_iterate(value) != nullptr; }
bool is_lower(Subject value) {
  return has_case(to_text(value), unicode::is_lower, unicode::is_upper);
}
bool is_upper(Subject value) {
  return has_case(to_text(value), unicode::is_upper, unicode::is_lower);
}
bool is_filter(Subject value) {
  return value.is_string() && find_filter(value.string()) != nullptr;
}
bool is_test(Subject value) { return value.is_string() && find_test(value.string()) != nullptr; }

template <int remainder>
bool has_remainder(Evaluation& evaluation, Subject subject, Arguments& arguments) {
  no_arguments(arguments);
  return equal(apply(evaluation, Binary::modulo, subject, Value(2)), Value(remainder));
}

bool divisibleby(Evaluation& evaluation, Subject subject, Arguments& arguments) {
  const Value divisor = bind("divisibleby", arguments, {"num"}, 1)[0];
  return equal(apply(evaluation, Binary::modulo, subject, divisor), Value(0));
}

template <bool wanted>
bool equals(Evaluation& evaluation, Subject subject, Arguments& arguments) {
  const Value other = argument(arguments);
  evaluation.charge(std::min(subject.extent().weight, other.extent().weight));
  return equal(subject, other) == wanted;
}

template <Order order>
bool compares(Evaluation& evaluation, Subject subject, Arguments& arguments) {
  const Value other = argument(arguments);
  evaluation.charge(std::min(subject.extent().weight, other.extent().weight));
  return ordered(order, subject, other);
}

bool same_as(Evaluation&, Subject subject, Arguments& arguments) {
  return subject.same_as(argument(arguments));
}

bool is_in(Evaluation& evaluation, Subject subject, Arguments& arguments) {
  return contains(evaluation, bind("in", arguments, {"seq"}, 1)[0], subject);
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

constexpr NamedTest kTests[] = {{"defined", test_kind<is_defined>},
                                {"undefined", test_kind<is_undefined>},
                                {"none", test_kind<is_none>},
                                {"boolean", test_kind<is_boolean>},
                                {"true", test_kind<is_true>},
                                {"false", test_kind<is_false>},
                                {"integer", test_kind<is_whole>},
                                {"float", test_kind<is_float>},
                                {"number", test_kind<is_number>},
                                {"string", test_kind<is_text>},
                                {"mapping", test_kind<is_mapping>},
                                {"sequence", test_kind<is_indexable>},
                                {"iterable", test_kind<is_iterable>},
                                {"callable", test_kind<is_callable>},
                                {"lower", test_kind<is_lower>},
                                {"upper", test_kind<is_upper>},
                                {"escaped", test_kind<is_safe>},
                                {"filter", test_kind<is_filter>},
                                {"test", test_kind<is_test>},
                                {"odd", has_remainder<1>},
                                {"even", has_remainder<0>},
                                {"divisibleby", divisibleby},
                                {"sameas", same_as},
                                {"in", is_in},
                                {"eq", equals<true>},
                                {"equalto", equals<true>},
                                {"==", equals<true>},
                                {"ne", equals<false>},
                                {"!=", equals<false>},
                                {"lt", compares<Order::less>},
                                {"lessthan", compares<Order::less>},
                                {"<", compares<Order::less>},
                                {"le", compares<Order::less_equal>},
                                {"<=", compares<Order::less_equal>},
                                {"gt", compares<Order::greater>},
                                {"greaterthan", compares<Order::greater>},
                                {">", compares<Order::greater>},
                                {"ge", compares<Order::greater_equal>},
                                {">=", compares<Order::greater_equal>}};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

TestFunction require_test(const Value& name) {
  const TestFunction test = name.is_string() ? find_test(name.string()) : nullptr;
  if (test == nullptr) fail(ErrorKind::runtime, "No test named " + repr(name) + ".");
  return test;
}

}  // namespace quire::jinja
