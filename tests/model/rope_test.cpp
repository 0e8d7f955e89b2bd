// Rotary tables against the published formulas, written out once more in doubles and plain loops.

#include "model/layers/rope.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <numbers>

#include "backend/measuring_device.h"
#include "cpu/cpu_backend.h"

namespace quire {
namespace {

constexpr int kDim = 32;

struct Loaded {
  Loaded(const RopeConfig& config, int max_len)
      : weights("nowhere", LoadFormat::dummy, 0, DType::f32, *device),
        rope(weights, config, kDim, max_len) {}

  double at(int row, int column) const {
    return static_cast<const float*>(rope.table().data())[row * kDim + column];
  }

  std::unique_ptr<Device> device = make_cpu_device();
  Weights weights;
  Rope rope;
};

RopeConfig config_of(RopeKind kind, double factor, int original) {
  RopeConfig config;
  config.kind = kind;
  config.factor = factor;
  config.original_max_position_embeddings = original;
  return config;
}

// Rows `first` … hold the angles position · inverse[i].
void check_table(const Loaded& loaded, int max_len, const std::vector<double>& inverse,
                 double amplitude = 1, int first = 0) {
  double worst = 0;
  for (int position = 0; position < max_len; ++position) {
    for (int i = 0; i < kDim / 2; ++i) {
      const double angle = position * inverse[i];
      const double cosine = amplitude * std::cos(angle), sine = amplitude * std::sin(angle);
      worst = std::max(worst, std::abs(loaded.at(first + position, i) - cosine));
      worst = std::max(worst, std::abs(loaded.at(first + position, kDim / 2 + i) - sine));
    }
  }
  CHECK(worst < 1e-3);  // an angle of 500 in float32
}

std::vector<double> plain(double theta, double divisor = 1) {
  std::vector<double> inverse;
  for (int i = 0; i < kDim / 2; ++i) inverse.push_back(std::pow(theta, -2.0 * i / kDim) / divisor);
  return inverse;
}

}  // namespace

TEST_CASE("linear scaling divides every angle", "[model][rope]") {
  const Loaded loaded(config_of(RopeKind::linear, 4, 128), 512);
  CHECK(loaded.rope.table().extent(0) == 512);
  check_table(loaded, 512, plain(10000, 4));
}

TEST_CASE("dynamic NTK stretches the base to the length served", "[model][rope]") {
  const RopeConfig config = config_of(RopeKind::dynamic, 4, 128);
  // Up to the original length nothing is stretched.
  check_table(Loaded(config, 64), 64, plain(10000));
  check_table(Loaded(config, 128), 128, plain(10000));
  for (const int length : {200, 512}) {
    const double stretch = 4.0 * length / 128 - 3;
    const double base = 10000 * std::pow(stretch, double(kDim) / (kDim - 2));
    check_table(Loaded(config, length), length, plain(base));
    CHECK(base > 20000);
  }
}

TEST_CASE("yarn turns fast pairs as trained and slow ones by the factor", "[model][rope]") {
  const double factor = 4, original = 128;
  const Loaded loaded(config_of(RopeKind::yarn, factor, 128), 512);
  const auto pair_that_turns = [&](double turns) {
    return kDim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(10000.0));
  };
  const double low = std::max(0.0, std::floor(pair_that_turns(32)));
  const double high = std::min(kDim - 1.0, std::ceil(pair_that_turns(1)));
  std::vector<double> inverse = plain(10000);
  for (int i = 0; i < kDim / 2; ++i) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    inverse[i] = inverse[i] / factor * ramp + inverse[i] * (1 - ramp);
  }
  CHECK(inverse.front() == 1);
  CHECK(inverse.back() == Approx(plain(10000).back() / factor));
  check_table(loaded, 512, inverse, 0.1 * std::log(factor) + 1);
}

TEST_CASE("longrope has a table for short prompts and one for long ones", "[model][rope]") {
  RopeConfig config = config_of(RopeKind::longrope, 4, 128);
  std::vector<double> in_short = plain(10000), in_long = plain(10000);
  for (int i = 0; i < kDim / 2; ++i) {
    config.short_factor.push_back(1 + 0.05 * i);
    config.long_factor.push_back(1 + 0.5 * i);
    in_short[i] /= config.short_factor.back();
    in_long[i] /= config.long_factor.back();
  }
  const double amplitude = std::sqrt(1 + std::log(4.0) / std::log(128.0));
  const Loaded both(config, 512);
  CHECK(both.rope.table().extent(0) == 1024);
  CHECK(both.rope.position_offset(128) == 0);
  CHECK(both.rope.position_offset(129) == 512);
  check_table(both, 512, in_short, amplitude);
  check_table(both, 512, in_long, amplitude, 512);
  // As long as needed: no prompt is long here.
  const Loaded one(config, 100);
  CHECK(one.rope.table().extent(0) == 100);
  CHECK(one.rope.position_offset(99) == 0);
}

TEST_CASE("A table is measured without being made", "[model][rope]") {
  MeasuringDevice device(false);
  Weights weights("nowhere", LoadFormat::dummy, 0, DType::f32, device, {}, true);
  constexpr int kLong = 1 << 28;
  const Rope rope(weights, config_of(RopeKind::yarn, 4, 128), kDim, kLong);
  CHECK(rope.table().extent(0) == kLong);
  CHECK(device.ledger().uses()[MemoryPurpose::weights].device ==
        std::size_t{kLong} * kDim * sizeof(float));
}

}  // namespace quire
