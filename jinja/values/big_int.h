#pragma once
// Python's integers beyond 64 bits: rare in templates, but 1e20|int has to print all its digits.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

class BigInt {
 public:
  static constexpr std::size_t kMaxDigits = 4300;  // where Python stops printing integers

  BigInt() = default;
  BigInt(std::int64_t value);                    // NOLINT: every integer is one
  static BigInt parse(std::string_view digits);  // decimal digits after an optional '-'
  static BigInt from_real(double value);         // finite; truncated

  bool negative() const { return negative_; }
  std::size_t size() const { return limbs_.size(); }  // of 9 digits each
  bool zero() const { return limbs_.empty(); }
  bool fits_int64() const;
  std::int64_t to_int64() const;
  double to_double() const;  // inf where too large
  std::string to_string() const;

  BigInt operator-() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b);
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  // Floored, as Python divides; the divisor is not zero.
  struct QuotientRemainder;
  static QuotientRemainder divide(const BigInt& a, const BigInt& b);
  static BigInt power(const BigInt& base, std::uint64_t exponent);

  friend std::strong_ordering operator<=>(const BigInt& a, const BigInt& b);
  friend bool operator==(const BigInt& a, const BigInt& b) = default;

 private:
  using Limbs = std::vector<std::uint32_t>;  // base 10^9, least first, no leading zeros
  static std::strong_ordering compare(const Limbs& a, const Limbs& b);
  static Limbs add(const Limbs& a, const Limbs& b);
  static Limbs subtract(const Limbs& a, const Limbs& b);  // a >= b
  static BigInt make(Limbs limbs, bool negative);

  Limbs limbs_;
  bool negative_ = false;
};

struct BigInt::QuotientRemainder {
  BigInt quotient;
  BigInt remainder;
};

}  // namespace quire::jinja
