#include "base/decimal.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace quire {
namespace {

constexpr std::size_t kMostExponentDigits = 9;

// From the front, one digit or more.
std::optional<std::string_view> take_digits(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  if (end == 0) return std::nullopt;
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == any_of.npos) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<Decimal> Decimal::of(std::string_view text) {
  Decimal result;
  result.negative = take(text, "-");
  const auto whole = take_digits(text);
  if (!whole) return std::nullopt;
  result.digits = *whole;
  if (take(text, ".")) {
    const auto fraction = take_digits(text);
    if (!fraction) return std::nullopt;
    result.digits += *fraction;
    result.exponent = -static_cast<std::int64_t>(fraction->size());
  }
  if (take(text, "eE")) {
    const bool down = !text.empty() && text.front() == '-';
    take(text, "+-");
    const auto digits = take_digits(text);
    if (!digits || digits->size() > kMostExponentDigits) return std::nullopt;
    std::int64_t shift = 0;
    std::from_chars(digits->data(), digits->data() + digits->size(), shift);
    result.exponent += down ? -shift : shift;
  }
  if (!text.empty()) return std::nullopt;
  const std::size_t last = result.digits.find_last_not_of('0');
  if (last == std::string::npos) return Decimal();  // -0 is 0
  result.exponent += static_cast<std::int64_t>(result.digits.size() - last - 1);
  result.digits.erase(last + 1);
  result.digits.erase(0, result.digits.find_first_not_of('0'));
  return result;
}

Decimal Decimal::of(double finite) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, finite, std::chars_format::scientific);
  return of(std::string_view(text, static_cast<std::size_t>(end.ptr - text))).value_or(Decimal());
}

std::string Decimal::plain() const {
  if (digits.empty()) return "0";
  std::string text = digits;
  if (exponent >= 0) {
    text.append(static_cast<std::size_t>(exponent), '0');
  } else {
    const auto places = static_cast<std::size_t>(-exponent);
    if (text.size() <= places) text.insert(0, places - text.size() + 1, '0');
    text.insert(text.size() - places, 1, '.');
  }
  return negative ? '-' + text : text;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (*this == other) return std::strong_ordering::equal;
  const auto sign = [](const Decimal& a) { return a.digits.empty() ? 0 : a.negative ? -1 : 1; };
  if (sign(*this) != sign(other)) return sign(*this) <=> sign(other);
  const auto places = [](const Decimal& a) {
    return a.exponent + static_cast<std::int64_t>(a.digits.size());
  };
  std::strong_ordering magnitude = places(*this) <=> places(other);
  if (magnitude == 0) magnitude = digits.compare(other.digits) <=> 0;
  return negative ? 0 <=> magnitude : magnitude;
}

std::optional<double> exact_double(std::string_view number) {
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  const auto decimal = Decimal::of(number);
  if (!decimal || *decimal != Decimal::of(value)) return std::nullopt;
  return value;
}

}  // namespace quire
