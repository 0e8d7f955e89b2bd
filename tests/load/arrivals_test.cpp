#include "load/arrivals.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace quire::load;

TEST_CASE("arrivals have the asked-for mean, and their own evenness", "[load][arrivals]") {
  const auto spread = [](ArrivalKind kind, double burstiness) {
    Arrivals arrivals({.kind = kind, .rate = 50, .burstiness = burstiness}, 1);
    double sum = 0, squares = 0;
    constexpr int kCount = 40'000;
    for (int i = 0; i < kCount; ++i) {
      const double gap = arrivals.next_gap(0);
      sum += gap;
      squares += gap * gap;
    }
    const double mean = sum / kCount;
    CHECK(mean == Approx(1 / 50.0).epsilon(0.05));
    return std::sqrt(std::max(0.0, squares / kCount - mean * mean)) / mean;
  };
  CHECK(spread(ArrivalKind::poisson, 1) == Approx(1).epsilon(0.05));
  Arrivals even({.kind = ArrivalKind::constant, .rate = 50}, 1);
  for (int i = 0; i < 100; ++i) CHECK(even.next_gap(0) == 1 / 50.0);
  CHECK(spread(ArrivalKind::gamma, 0.25) == Approx(2).epsilon(0.08));
  CHECK(spread(ArrivalKind::gamma, 4) == Approx(0.5).epsilon(0.05));
}

TEST_CASE("a ramp's rate moves in a straight line and stays", "[load][arrivals]") {
  Arrivals arrivals({.kind = ArrivalKind::constant, .rate = 10, .ramp_to = 50, .ramp_seconds = 20},
                    1);
  CHECK(arrivals.next_gap(0) == Approx(1 / 10.0));
  CHECK(arrivals.next_gap(5) == Approx(1 / 20.0));
  CHECK(arrivals.next_gap(20) == Approx(1 / 50.0));
  CHECK(arrivals.next_gap(100) == Approx(1 / 50.0));
}
