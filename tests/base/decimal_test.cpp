#include "base/decimal.h"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

std::string plain(std::string_view text) {
  const auto decimal = Decimal::of(text);
  return decimal ? decimal->plain() : "none";
}

TEST_CASE("numbers of JSON lose nothing as decimals", "[decimal]") {
  CHECK(plain("0") == "0");
  CHECK(plain("-0.000e5") == "0");
  CHECK(plain("1e30") == "1" + std::string(30, '0'));
  CHECK(plain("18446744073709551616") == "18446744073709551616");
  CHECK(plain("-12.5e-3") == "-0.0125");
  CHECK(plain("1200.00") == "1200");
  CHECK(plain("0.10e1") == "1");
  for (const char* wrong : {"", "-", "1.", ".5", "1e", "1e+", "0x1", "1 ", "1e9999999999"}) {
    INFO(wrong);
    CHECK(plain(wrong) == "none");
  }
}

TEST_CASE("decimals are ordered by value", "[decimal]") {
  const std::vector<std::string> ascending = {"-1e30", "-1.5", "-1.49", "-1e-300", "0", "5e-324",
                                              "0.1", "0.11", "9", "10", "10.01", "1e30"};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    for (std::size_t j = 0; j < ascending.size(); ++j) {
      INFO(ascending[i] << " and " << ascending[j]);
      CHECK((*Decimal::of(ascending[i]) <=> *Decimal::of(ascending[j])) == (i <=> j));
    }
  }
}

TEST_CASE("a double is exact where its shortest text says the same", "[decimal]") {
  for (const char* held : {"1e30", "1000000000000000000000000000000", "0.1", "1.50", "-2.5E-3", "1.7976931348623157e308"}) {
    INFO(held);
    CHECK(exact_double(held) == std::stod(held));
  }
  for (const char* lost : {"18446744073709551616", "-9223372036854775809", "0.12345678901234567890", "1e309", "1e-400", "NaN"}) {
    INFO(lost);
    CHECK_FALSE(exact_double(lost).has_value());
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    CHECK(exact_double(Decimal::of(value).plain()) == value);
  }
}

}  // namespace
}  // namespace quire
