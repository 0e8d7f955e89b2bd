#pragma once
// When requests are due in an open loop, from one seed.

#include <cstdint>
#include <random>

namespace quire::load {

enum class ArrivalKind : std::uint8_t { poisson, constant, gamma };

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::poisson;
  double rate = 0;  // requests a second on average; 0: a closed loop
  // Of gamma arrivals, the shape of the gaps' distribution: 1 is Poisson, below that requests come
  // in bursts, above more evenly.
  double burstiness = 1;
  // The rate moves in a straight line to this one within `ramp_seconds`, and stays; 0: no ramp.
  double ramp_to = 0;
  double ramp_seconds = 0;
};

class Arrivals {
 public:
  Arrivals(const ArrivalOptions& options, std::uint64_t seed);

  // Seconds from an arrival at `at` to the next one.
  double next_gap(double at);

 private:
  double rate_at(double at) const;

  ArrivalOptions options_;
  std::exponential_distribution<double> exponential_{1.0};
  std::gamma_distribution<double> gamma_;
  std::mt19937_64 random_;
};

}  // namespace quire::load
