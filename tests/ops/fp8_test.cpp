#include "backend/fp8.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "tests/ops/fp8_reference.h"

namespace quire::test {
namespace {

static_assert(fp8_e4m3(448.f).bits == kFp8Largest);
static_assert(static_cast<float>(fp8_e4m3(-0.4375f)) == -0.4375f);

fp8_e4m3 of_bits(int bits) {
  fp8_e4m3 x;
  x.bits = static_cast<std::uint8_t>(bits);
  return x;
}

}  // namespace

TEST_CASE("every e4m3 code has the value of its definition and comes back as it was",
          "[ops][fp8]") {
  for (int code = 0; code < 256; ++code) {
    INFO(code);
    const auto value = static_cast<float>(of_bits(code));
    CHECK(std::signbit(value) == (code >= 0x80));
    if ((code & 0x7f) == kFp8Nan) {
      CHECK(std::isnan(value));
    } else {
      CHECK(static_cast<double>(value) == fp8_value(code));
    }
    CHECK(fp8_e4m3(value).bits == code);
  }
}

TEST_CASE("e4m3 rounds halves to even and everything else to the nearest", "[ops][fp8]") {
  for (int code = 0; code < kFp8Largest; ++code) {
    INFO(code);
    const auto half = static_cast<float>((fp8_value(code) + fp8_value(code + 1)) / 2);
    for (const float sign : {1.f, -1.f}) {
      const int negative = sign < 0 ? 0x80 : 0;
      CHECK(fp8_e4m3(sign * half).bits == (negative | (code + code % 2)));
      CHECK(fp8_e4m3(sign * std::nextafter(half, 0.f)).bits == (negative | code));
      CHECK(fp8_e4m3(sign * std::nextafter(half, 1e9f)).bits == (negative | (code + 1)));
    }
  }
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (const float size : {1e-3f, 0.05f, 1.f, 60.f}) {
    for (int i = 0; i < 500; ++i) {
      const float value = size * normal(rng);
      INFO(value);
      CHECK(fp8_e4m3(value).bits == fp8_nearest(value));
    }
  }
}

TEST_CASE("e4m3 saturates and keeps NaN", "[ops][fp8]") {
  using Limits = std::numeric_limits<float>;
  for (const float value :
       {448.f, 448.1f, 463.9f, 464.f, 480.f, 1e6f, Limits::max(), Limits::infinity()}) {
    INFO(value);
    CHECK(fp8_e4m3(value).bits == kFp8Largest);
    CHECK(fp8_e4m3(-value).bits == (0x80 | kFp8Largest));
  }
  for (const float nan : {Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN()}) {
    CHECK((fp8_e4m3(nan).bits & 0x7f) == kFp8Nan);
  }
  CHECK(fp8_e4m3(Limits::denorm_min()).bits == 0);
  CHECK(fp8_e4m3(-0.f).bits == 0x80);
}

}  // namespace quire::test
