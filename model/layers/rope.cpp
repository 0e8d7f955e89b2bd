#include "model/layers/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire {

namespace {

// Angle per position of each pair of dimensions, and the factor on cos and sin.
struct Frequencies {
  std::vector<float> inverse;
  float amplitude = 1.f;
};

std::vector<float> standard(double theta, int dim) {
  std::vector<float> inverse(static_cast<std::size_t>(dim / 2));
  for (int i = 0; i < dim / 2; ++i) {
    inverse[i] = static_cast<float>(1.0 / std::pow(theta, 2.0 * i / dim));
  }
  return inverse;
}

// Base stretched to the length served ("NTK-aware"); the same as no scaling up to the original one,
// and at the original one times the factor what vLLM always uses.
std::vector<float> dynamic_ntk(const RopeConfig& config, int dim, int max_len) {
  const double trained = config.original_max_position_embeddings;
  const double length = std::max<double>(max_len, trained);
  const double stretch = config.factor * length / trained - (config.factor - 1);
  return standard(config.theta * std::pow(stretch, dim / (dim - 2.0)), dim);
}

// Wavelengths beyond the trained context are stretched, short ones kept, between them blended.
std::vector<float> llama3(const RopeConfig& config, int dim) {
  std::vector<float> inverse = standard(config.theta, dim);
  const double trained = config.original_max_position_embeddings;
  for (float& f : inverse) {
    const double wavelength = 2 * std::numbers::pi / f;
    const double blend = (trained / wavelength - config.low_freq_factor) /
                         (config.high_freq_factor - config.low_freq_factor);
    const double keep = std::clamp(blend, 0.0, 1.0);
    f = static_cast<float>((1 - keep) * f / config.factor + keep * f);
  }
  return inverse;
}

// arXiv 2309.00071: interpolate where a dimension turns less than beta_slow times over the trained
// context, keep where it turns more than beta_fast times, a ramp between.
Frequencies yarn(const RopeConfig& config, int dim) {
  const auto dimension_of = [&](double turns) {
    return dim *
           std::log(config.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(config.theta));
  };
  double low = dimension_of(config.beta_fast), high = dimension_of(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // no division by zero; as the reference
  Frequencies out{standard(config.theta, dim), 1.f};
  for (int i = 0; i < dim / 2; ++i) {
    const double interpolated = std::clamp((i - low) / (high - low), 0.0, 1.0);
    const double f = out.inverse[i];
    out.inverse[i] = static_cast<float>(interpolated * f / config.factor + (1 - interpolated) * f);
  }
  const bool both = config.mscale != 0 && config.mscale_all_dim != 0;
  const double amplitude = both ? yarn_mscale(config.factor, config.mscale) /
                                      yarn_mscale(config.factor, config.mscale_all_dim)
                                : yarn_mscale(config.factor, 1.0);
  out.amplitude = static_cast<float>(config.attention_factor.value_or(amplitude));
  return out;
}

// arXiv 2402.13753: a factor found by search for every pair.
Frequencies longrope(const RopeConfig& config, int dim, const std::vector<double>& factors) {
  if (static_cast<int>(factors.size()) != dim / 2) {
    throw Failure(ErrorCode::invalid_argument, "config.json: rope long_factor has " +
                                                   std::to_string(factors.size()) +
                                                   " entries, expected " + std::to_string(dim / 2));
  }
  Frequencies out{standard(config.theta, dim), 1.f};
  for (int i = 0; i < dim / 2; ++i) {
    out.inverse[i] = static_cast<float>(out.inverse[i] / factors[i]);
  }
  const double trained = config.original_max_position_embeddings;
  const double amplitude =
      config.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(config.factor) / std::log(trained));
  out.amplitude = static_cast<float>(config.attention_factor.value_or(amplitude));
  return out;
}

Frequencies frequencies(const RopeConfig& config, int dim, int max_len) {
  switch (config.kind) {
    case RopeKind::linear: {
      Frequencies out{standard(config.theta, dim), 1.f};
      for (float& f : out.inverse) f = static_cast<float>(f / config.factor);
      return out;
    }
    case RopeKind::dynamic:
      return {dynamic_ntk(config, dim, max_len), 1.f};
    case RopeKind::llama3:
      return {llama3(config, dim), 1.f};
    case RopeKind::yarn:
      return yarn(config, dim);
    case RopeKind::longrope:
      return longrope(config, dim, config.short_factor);
    case RopeKind::none:
    case RopeKind::standard:
      break;
  }
  return {standard(config.theta, dim), 1.f};
}

// Angles in float32, as the reference rounds them.
void fill_table(float* row, const Frequencies& f, int max_len) {
  const std::size_t pairs = f.inverse.size();
  for (int position = 0; position < max_len; ++position, row += 2 * pairs) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(position) * f.inverse[i];
      row[i] = std::cos(angle) * f.amplitude;
      row[pairs + i] = std::sin(angle) * f.amplitude;
    }
  }
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// With latent attention a part of the head rotates.
Rope make_rope(Weights& weights, const ModelConfig& config, int max_len) {
  if (config.mla.kv_lora_rank == 0) return {weights, config.rope, config.head_dim, max_len};
  return {weights, config.rope, config.mla.qk_rope_head_dim, max_len,
          config.mla.rope_interleave ? RopeStyle::interleaved : RopeStyle::halves};
}

Rope::Rope(Weights& weights, const RopeConfig& config, int dim, int max_len, RopeStyle style)
    : style_(style) {
  if (config.kind == RopeKind::none) return;
  const int rotary = static_cast<int>(dim * config.partial_rotary_factor) / 2 * 2;
  if (rotary == 0) {
    throw Failure(ErrorCode::invalid_argument,
                  "config.json: partial_rotary_factor rotates no dimension of a head of " +
                      std::to_string(dim));
  }
  std::vector<Frequencies> tables = {frequencies(config, rotary, max_len)};
  short_len_ = max_len;
  if (config.kind == RopeKind::longrope && max_len > config.original_max_position_embeddings) {
    tables.push_back(longrope(config, rotary, config.long_factor));
    short_len_ = config.original_max_position_embeddings;
    long_offset_ = max_len;
  }
  const auto rows = static_cast<std::int64_t>(tables.size()) * max_len;
  table_ = weights.make({rows, rotary}, DType::f32, [&](std::byte* out) {
    auto* const floats = reinterpret_cast<float*>(out);
    for (std::size_t i = 0; i < tables.size(); ++i)
      fill_table(floats + i * static_cast<std::size_t>(max_len) * rotary, tables[i], max_len);
  });
}

}  // namespace quire
