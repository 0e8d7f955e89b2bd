#include "jinja/values/arithmetic.h"

#include <cmath>
#include <string>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/values/markup.h"
#include "jinja/values/operators.h"
#include "jinja/values/percent_format.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

std::string_view sign_of(Binary op) {
  switch (op) {
    case Binary::add:
      return "+";
    case Binary::subtract:
      return "-";
    case Binary::multiply:
      return "*";
    case Binary::divide:
      return "/";
    case Binary::floor_divide:
      return "//";
    case Binary::modulo:
      return "%";
    case Binary::power:
      return "** or pow()";
  }
  return "";
}

[[noreturn]] void fail_operands(Binary op, const Value& a, const Value& b) {
  fail(ErrorKind::type, "unsupported operand type(s) for " + std::string(sign_of(op)) + ": '" +
                            std::string(type_name(a)) + "' and '" + std::string(type_name(b)) +
                            "'");
}

double floored_remainder(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder != 0) return (b < 0) != (remainder < 0) ? remainder + b : remainder;
  return std::copysign(0.0, b);
}

double floored_quotient(double a, double b) {
  const double quotient = (a - floored_remainder(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

double real_power(double a, double b) {
  if (a == 0 && b < 0) fail(ErrorKind::arithmetic, "0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    fail(ErrorKind::overflow, "(34, 'Numerical result out of range')");
  }
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
    fail(ErrorKind::type, "complex numbers are not supported");
  }
  return result;
}

Value apply_reals(Binary op, double a, double b) {
  switch (op) {
    case Binary::add:
      return Value(a + b);
    case Binary::subtract:
      return Value(a - b);
    case Binary::multiply:
      return Value(a * b);
    case Binary::power:
      return Value(real_power(a, b));
    case Binary::divide:
      if (b == 0) fail(ErrorKind::arithmetic, "float division by zero");
      return Value(a / b);
    case Binary::floor_divide:
      if (b == 0) fail(ErrorKind::arithmetic, "float floor division by zero");
      return Value(floored_quotient(a, b));
    case Binary::modulo:
      if (b == 0) fail(ErrorKind::arithmetic, "float modulo");
      return Value(floored_remainder(a, b));
  }
  return Value();
}

Value apply_big(Evaluation& evaluation, Binary op, const BigInt& a, const BigInt& b) {
  constexpr std::uint64_t kQuotientSteps = 30;  // of the search for each of a quotient's limbs
  const std::uint64_t product = a.size() * b.size();
  evaluation.step(10 + product / 10);
  switch (op) {
    case Binary::add:
      return Value(a + b);
    case Binary::subtract:
      return Value(a - b);
    case Binary::multiply:
      return Value(a * b);
    case Binary::divide:
      if (b.zero()) fail(ErrorKind::arithmetic, "division by zero");
      return Value(a.to_double() / b.to_double());
    case Binary::floor_divide:
    case Binary::modulo:
      if (b.zero()) fail(ErrorKind::arithmetic, "integer division or modulo by zero");
      evaluation.step(kQuotientSteps * (product + a.size()));
      return Value(op == Binary::modulo ? BigInt::divide(a, b).remainder
                                        : BigInt::divide(a, b).quotient);
    case Binary::power:
      evaluation.step(BigInt::kMaxDigits);
      if (b.negative()) return Value(real_power(a.to_double(), b.to_double()));
      if (!b.fits_int64()) fail(ErrorKind::overflow, "exponent too large");
      return Value(BigInt::power(a, std::uint64_t(b.to_int64())));
  }
  return Value();
}

// Empty where 64 bits do not suffice or the rarer cases need looking at.
std::optional<Value> apply_small(Binary op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Binary::add:
      if (__builtin_add_overflow(a, b, &result)) return {};
      return Value(result);
    case Binary::subtract:
      if (__builtin_sub_overflow(a, b, &result)) return {};
      return Value(result);
    case Binary::multiply:
      if (__builtin_mul_overflow(a, b, &result)) return {};
      return Value(result);
    case Binary::divide:
      if (b == 0) return {};
      return Value(double(a) / double(b));
    case Binary::floor_divide:
      if (b == 0 || (a == INT64_MIN && b == -1)) return {};
      return Value(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    case Binary::modulo:
      if (b == 0 || b == -1) return {};
      return Value(a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0));
    case Binary::power:
      return {};
  }
  return {};
}

Value apply_numbers(Evaluation& evaluation, Binary op, const Value& a, const Value& b) {
  if (a.is(Kind::real) || b.is(Kind::real)) return apply_reals(op, to_real(a), to_real(b));
  if (!a.is(Kind::big_integer) && !b.is(Kind::big_integer)) {
    if (auto result = apply_small(op, as_small(a), as_small(b))) return *std::move(result);
  }
  return apply_big(evaluation, op, to_big(a), to_big(b));
}

Value join_items(Evaluation& evaluation, const Value& a, const Value& b) {
  List items;
  evaluation.charge((a.items().size() + b.items().size()) * sizeof(Value));
  items.reserve(a.items().size() + b.items().size());
  items.insert(items.end(), a.items().begin(), a.items().end());
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::list) ? Value(std::move(items)) : Value(Tuple{std::move(items)});
}

Value add_sequences(Evaluation& evaluation, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    const bool safe = a.text().safe || b.text().safe;
    if (safe) return evaluation.text(escape(a).string() + escape(b).string(), true);
    return evaluation.text(a.string() + b.string());
  }
  if (a.is_sequence() && a.kind() == b.kind()) return join_items(evaluation, a, b);
  if (a.is_string() || a.is_sequence()) {
    const std::string type(type_name(a));
    fail(ErrorKind::type, "can only concatenate " + type + " (not \"" + std::string(type_name(b)) +
                              "\") to " + type);
  }
  fail_operands(Binary::add, a, b);
}

Value repeat(Evaluation& evaluation, const Value& sequence, const Value& times) {
  if (!is_integral(times)) {
    fail(ErrorKind::type,
         "can't multiply sequence by non-int of type '" + std::string(type_name(times)) + "'");
  }
  const auto count = std::uint64_t(std::max<std::int64_t>(as_index(times), 0));
  const std::uint64_t size =
      sequence.is_string() ? sequence.string().size() : sequence.items().size() * sizeof(Value);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(size, count, &bytes)) bytes = UINT64_MAX;
  if (bytes == 0)
    return sequence.is_string()      ? Value(std::string(), sequence.text().safe)
           : sequence.is(Kind::list) ? Value(List{})
                                     : Value(Tuple{});
  evaluation.charge_text(bytes);
  if (sequence.is_string()) {
    std::string text;
    text.reserve(bytes);
    for (std::uint64_t i = 0; i < count; ++i) text += sequence.string();
    return Value(std::move(text), sequence.text().safe);
  }
  List items;
  items.reserve(sequence.items().size() * count);
  for (std::uint64_t i = 0; i < count; ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return sequence.is(Kind::list) ? Value(std::move(items)) : Value(Tuple{std::move(items)});
}

bool is_repeatable(const Value& value) { return value.is_string() || value.is_sequence(); }

}  // namespace

Value apply(Evaluation& evaluation, Binary op, const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) return apply_numbers(evaluation, op, a, b);
  if (op == Binary::modulo && a.is_string()) return percent_format(evaluation, a, b);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (op == Binary::add) return add_sequences(evaluation, a, b);
  if (op == Binary::multiply && is_repeatable(a)) return repeat(evaluation, a, b);
  if (op == Binary::multiply && is_repeatable(b)) return repeat(evaluation, b, a);
  fail_operands(op, a, b);
}

Value negate(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::real)) return Value(-value.real());
  if (!is_number(value)) {
    fail(ErrorKind::type, "bad operand type for unary -: '" + std::string(type_name(value)) + "'");
  }
  return Value(-to_big(value));
}

Value positive(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::boolean)) return Value(std::int64_t(value.boolean()));
  if (is_number(value)) return value;
  fail(ErrorKind::type, "bad operand type for unary +: '" + std::string(type_name(value)) + "'");
}

bool is_integral(const Value& value) { return is_number(value) && !value.is(Kind::real); }

std::int64_t as_small(const Value& value) {
  return value.is(Kind::boolean) ? std::int64_t(value.boolean()) : value.integer();
}

BigInt to_big(const Value& integer) {
  return integer.is(Kind::big_integer) ? integer.big_integer() : BigInt(as_small(integer));
}

double to_real(const Value& number) {
  if (number.is(Kind::real)) return number.real();
  if (!number.is(Kind::big_integer)) return double(as_small(number));
  const double real = number.big_integer().to_double();
  if (std::isinf(real)) fail(ErrorKind::overflow, "int too large to convert to float");
  return real;
}

std::int64_t as_index(const Value& value) {
  if (value.is(Kind::integer) || value.is(Kind::boolean)) return as_small(value);
  if (value.is(Kind::big_integer)) {
    fail(ErrorKind::overflow, "Python int too large to convert to C ssize_t");
  }
  fail(ErrorKind::type,
       "'" + std::string(type_name(value)) + "' object cannot be interpreted as an integer");
}

}  // namespace quire::jinja
