#pragma once
// Decimal numbers by value, of any size and without rounding: as JSON has them.

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// digits · 10^exponent. No zeros at either end of the digits; 0 has none.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  // Empty: not a number of JSON, or its exponent has more than nine digits.
  static std::optional<Decimal> of(std::string_view number);
  // The shortest that reads as this double.
  static Decimal of(double finite);

  // Without exponent: "-0.05". As long as the exponent is large.
  std::string plain() const;
  bool operator==(const Decimal&) const = default;
  std::strong_ordering operator<=>(const Decimal& other) const;
};

// The double that is this number, if the shortest text that reads as that double says the same.
std::optional<double> exact_double(std::string_view number);

}  // namespace quire
