// Filters on numbers.

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/filter_functions.h"
#include "jinja/syntax/literals.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/format_spec.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

Value absolute(Evaluation&, const Value& subject, Arguments& arguments) {
  bind("abs", arguments, {}, 0);
  if (!is_number(subject)) {
    fail(ErrorKind::type, "bad operand type for abs(): '" + std::string(type_name(subject)) + "'");
  }
  if (subject.is(Kind::real)) return Value(std::fabs(subject.real()));
  const BigInt value = to_big(subject);
  return Value(value.negative() ? -value : value);
}

Value truncated(double value) {
  if (std::isnan(value)) fail(ErrorKind::value, "cannot convert float NaN to integer");
  if (std::isinf(value)) fail(ErrorKind::overflow, "cannot convert float infinity to integer");
  return Value(BigInt::from_real(value));
}

Value to_integer(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("int", arguments, {"default", "base"}, 0);
  const Value otherwise = is_given(bound[0]) ? bound[0] : Value(0);
  if (subject.is_undefined()) fail_undefined(subject);
  if (subject.is(Kind::real))
    return std::isnan(subject.real()) ? otherwise : truncated(subject.real());
  if (is_number(subject)) return positive(subject);
  if (!subject.is_string()) return otherwise;
  const Value base_value = is_given(bound[1]) ? bound[1] : Value(10);
  const std::int64_t base = base_value.is(Kind::integer) ? base_value.integer() : -1;
  evaluation.charge(subject.string().size());
  if (base == 0 || (base >= 2 && base <= 36)) {
    if (auto integer = parse_integer(subject.string(), int(base))) return *std::move(integer);
  }
  const auto real = parse_real(subject.string());
  return real && std::isfinite(*real) ? truncated(*real) : otherwise;
}

Value to_float(Evaluation&, const Value& subject, Arguments& arguments) {
  const List bound = bind("float", arguments, {"default"}, 0);
  if (subject.is_undefined()) fail_undefined(subject);
  if (is_number(subject)) return Value(to_real(subject));
  if (subject.is_string()) {
    if (const auto real = parse_real(subject.string())) return Value(*real);
  }
  return is_given(bound[0]) ? bound[0] : Value(0.0);
}

// Half to even on the exact value, as Python's round() and the C library's %f do.
double round_half_even(double value, std::int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision >= 0) {
    char buffer[700];
    std::snprintf(buffer, sizeof buffer, "%.*f", int(precision), value);
    return std::strtod(buffer, nullptr);
  }
  if (precision < -308) return std::copysign(0.0, value);
  const double scale = std::pow(10.0, double(-precision));
  return std::nearbyint(value / scale) * scale;
}

Value round_integer(const Value& subject, std::int64_t precision) {
  if (precision >= 0) return positive(subject);
  if (precision < -std::int64_t(BigInt::kMaxDigits)) return Value(0);
  const BigInt scale = BigInt::power(BigInt(10), std::uint64_t(-precision));
  const BigInt value = to_big(subject);
  const BigInt::QuotientRemainder split = BigInt::divide(value, scale);
  const auto half = BigInt(2) * split.remainder <=> scale;
  const bool odd = !BigInt::divide(split.quotient, BigInt(2)).remainder.zero();
  const bool up = half > 0 || (half == 0 && odd);
  return Value((split.quotient + BigInt(up ? 1 : 0)) * scale);
}

Value round_filter(Evaluation&, const Value& subject, Arguments& arguments) {
  const List bound = bind("round", arguments, {"precision", "method"}, 0);
  const std::int64_t precision = is_given(bound[0]) ? as_index(bound[0]) : 0;
  const std::string method = !is_given(bound[1])    ? "common"
                             : bound[1].is_string() ? bound[1].string()
                                                    : "";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail(ErrorKind::runtime, "method must be common, ceil or floor");
  }
  if (!is_number(subject)) {
    if (method != "common" && subject.is_undefined()) fail_undefined(subject);
    fail(ErrorKind::type,
         "type " + std::string(type_name(subject)) + " doesn't define __round__ method");
  }
  if (method == "common") {
    return subject.is(Kind::real) ? Value(round_half_even(subject.real(), precision))
                                  : round_integer(subject, precision);
  }
  const double scale = std::pow(10.0, double(precision));
  const double scaled = to_real(subject) * scale;
  if (!std::isfinite(scaled)) return truncated(scaled);
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filesizeformat(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("filesizeformat", arguments, {"binary"}, 0);
  const bool binary = flag(bound, 0);
  if (subject.is_undefined()) fail_undefined(subject);
  const auto parsed = subject.is_string() ? parse_real(subject.string()) : std::nullopt;
  if (subject.is_string() && !parsed) {
    fail(ErrorKind::value, "could not convert string to float: '" + subject.string() + "'");
  }
  if (!parsed && !is_number(subject)) {
    fail(ErrorKind::type, "float() argument must be a string or a real number, not '" +
                              std::string(type_name(subject)) + "'");
  }
  const double bytes = parsed ? *parsed : to_real(subject);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return evaluation.text("1 Byte");
  if (bytes < base) return evaluation.text(format_integer(truncated(bytes), 10, false) + " Bytes");
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  for (; i < kPrefixes.size(); ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == kPrefixes.size()) break;
  }
  const std::string prefix(1, binary && i == 0 ? 'K' : kPrefixes[i]);
  return evaluation.text(format_real(base * bytes / unit, 'f', 1, false) + " " + prefix +
                         (binary ? "iB" : "B"));
}

constexpr NamedFilter kFilters[] = {{"abs", absolute},
                                    {"int", to_integer},
                                    {"float", to_float},
                                    {"round", round_filter},
                                    {"filesizeformat", filesizeformat}};

}  // namespace

FilterTable number_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace quire::jinja
