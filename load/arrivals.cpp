#include "load/arrivals.h"

#include <algorithm>

namespace quire::load {

Arrivals::Arrivals(const ArrivalOptions& options, std::uint64_t seed)
    : options_(options), gamma_(options.burstiness, 1 / options.burstiness), random_(seed) {}

double Arrivals::rate_at(double at) const {
  if (options_.ramp_to <= 0 || options_.ramp_seconds <= 0) return options_.rate;
  const double share = std::clamp(at / options_.ramp_seconds, 0.0, 1.0);
  return options_.rate + share * (options_.ramp_to - options_.rate);
}

double Arrivals::next_gap(double at) {
  const double mean = 1 / rate_at(at);
  switch (options_.kind) {
    case ArrivalKind::constant:
      return mean;
    case ArrivalKind::gamma:
      return mean * gamma_(random_);
    case ArrivalKind::poisson:
      break;
  }
  return mean * exponential_(random_);
}

}  // namespace quire::load
