#include "jinja/values/big_int.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "jinja/error.h"

namespace quire::jinja {
namespace {

constexpr std::uint64_t kBase = 1'000'000'000;
constexpr int kBaseDigits = 9;

}  // namespace

BigInt BigInt::make(Limbs limbs, bool negative) {
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
  if (limbs.size() > kMaxDigits / kBaseDigits + 1) {
    fail(ErrorKind::value, "Exceeds the limit (4300 digits) for integer string conversion");
  }
  BigInt result;
  result.negative_ = negative && !limbs.empty();
  result.limbs_ = std::move(limbs);
  return result;
}

BigInt::BigInt(std::int64_t value) : negative_(value < 0) {
  std::uint64_t magnitude = value < 0 ? 0 - std::uint64_t(value) : std::uint64_t(value);
  for (; magnitude > 0; magnitude /= kBase) limbs_.push_back(std::uint32_t(magnitude % kBase));
}

BigInt BigInt::parse(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  if (digits.size() > kMaxDigits) {
    fail(ErrorKind::value, "Exceeds the limit (4300 digits) for integer string conversion");
  }
  Limbs limbs;
  for (std::size_t end = digits.size(); end > 0;) {
    const std::size_t begin = end > kBaseDigits ? end - kBaseDigits : 0;
    std::uint32_t limb = 0;
    for (std::size_t i = begin; i < end; ++i) limb = limb * 10 + std::uint32_t(digits[i] - '0');
    limbs.push_back(limb);
    end = begin;
  }
  return make(std::move(limbs), negative);
}

BigInt BigInt::from_real(double value) {
  char digits[400];  // the largest double has 309
  std::snprintf(digits, sizeof digits, "%.0f",
                value < 0 ? -__builtin_floor(-value) : __builtin_floor(value));
  return parse(digits[0] == '-' && digits[1] == '0' ? "0" : digits);
}

bool BigInt::fits_int64() const {
  static const BigInt kMin(INT64_MIN);
  static const BigInt kMax(INT64_MAX);
  return kMin <= *this && *this <= kMax;
}

std::int64_t BigInt::to_int64() const {
  std::uint64_t magnitude = 0;
  for (auto limb = limbs_.rbegin(); limb != limbs_.rend(); ++limb)
    magnitude = magnitude * kBase + *limb;
  return std::int64_t(negative_ ? 0 - magnitude : magnitude);
}

double BigInt::to_double() const { return std::strtod(to_string().c_str(), nullptr); }

std::string BigInt::to_string() const {
  if (zero()) return "0";
  std::string text = (negative_ ? "-" : "") + std::to_string(limbs_.back());
  for (auto limb = limbs_.rbegin() + 1; limb != limbs_.rend(); ++limb) {
    const std::string part = std::to_string(*limb);
    text.append(kBaseDigits - part.size(), '0').append(part);
  }
  return text;
}

std::strong_ordering BigInt::compare(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() <=> b.size();
  return std::lexicographical_compare_three_way(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

BigInt::Limbs BigInt::add(const Limbs& a, const Limbs& b) {
  Limbs sum;
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()) || carry > 0; ++i) {
    carry += (i < a.size() ? a[i] : 0) + std::uint64_t(i < b.size() ? b[i] : 0);
    sum.push_back(std::uint32_t(carry % kBase));
    carry /= kBase;
  }
  return sum;
}

BigInt::Limbs BigInt::subtract(const Limbs& a, const Limbs& b) {
  Limbs difference;
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t limb = std::int64_t(a[i]) - (i < b.size() ? b[i] : 0) - borrow;
    borrow = limb < 0;
    if (limb < 0) limb += std::int64_t(kBase);
    difference.push_back(std::uint32_t(limb));
  }
  return difference;
}

BigInt BigInt::operator-() const { return make(limbs_, !negative_); }

BigInt operator+(const BigInt& a, const BigInt& b) {
  if (a.negative_ == b.negative_) return BigInt::make(BigInt::add(a.limbs_, b.limbs_), a.negative_);
  if (BigInt::compare(a.limbs_, b.limbs_) >= 0) {
    return BigInt::make(BigInt::subtract(a.limbs_, b.limbs_), a.negative_);
  }
  return BigInt::make(BigInt::subtract(b.limbs_, a.limbs_), b.negative_);
}

BigInt operator-(const BigInt& a, const BigInt& b) { return a + (-b); }

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt::Limbs product(a.limbs_.size() + b.limbs_.size() + 1);
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.limbs_.size() || carry > 0; ++j) {
      carry +=
          product[i + j] + std::uint64_t(a.limbs_[i]) * (j < b.limbs_.size() ? b.limbs_[j] : 0);
      product[i + j] = std::uint32_t(carry % kBase);
      carry /= kBase;
    }
  }
  return BigInt::make(std::move(product), a.negative_ != b.negative_);
}

// Schoolbook: each quotient limb by bisection over 10^9, which is 30 multiplications by a small
// number.
BigInt::QuotientRemainder BigInt::divide(const BigInt& a, const BigInt& b) {
  const BigInt divisor = make(b.limbs_, false);
  Limbs quotient(a.limbs_.size());
  BigInt rest;
  for (std::size_t i = a.limbs_.size(); i-- > 0;) {
    rest.limbs_.insert(rest.limbs_.begin(), a.limbs_[i]);
    rest = make(std::move(rest.limbs_), false);
    std::int64_t low = 0;
    std::int64_t high = std::int64_t(kBase) - 1;
    while (low < high) {
      const std::int64_t middle = (low + high + 1) / 2;
      if (divisor * BigInt(middle) <= rest) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    quotient[i] = std::uint32_t(low);
    rest = rest - divisor * BigInt(low);
  }
  QuotientRemainder result{make(std::move(quotient), a.negative_ != b.negative_),
                           make(rest.limbs_, a.negative_)};
  if (!result.remainder.zero() && a.negative_ != b.negative_) {
    result.quotient = result.quotient - BigInt(1);
    result.remainder = result.remainder + b;
  }
  return result;
}

BigInt BigInt::power(const BigInt& base, std::uint64_t exponent) {
  BigInt result(1);
  BigInt square = base;
  for (;;) {
    if (exponent & 1) result = result * square;
    exponent >>= 1;
    if (exponent == 0) return result;
    square = square * square;
  }
}

std::strong_ordering operator<=>(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) return b.negative_ <=> a.negative_;
  return a.negative_ ? BigInt::compare(b.limbs_, a.limbs_) : BigInt::compare(a.limbs_, b.limbs_);
}

}  // namespace quire::jinja
