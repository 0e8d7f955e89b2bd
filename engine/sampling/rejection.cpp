#include "engine/sampling/rejection.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "backend/philox.h"

namespace quire {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// Ties with the k-th largest stay.
void keep_top_k(std::span<float> scaled, std::int32_t k) {
  if (k <= 0 || static_cast<std::size_t>(k) >= scaled.size()) return;
  std::vector<float> sorted(scaled.begin(), scaled.end());
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const float least = sorted[static_cast<std::size_t>(k) - 1];
  for (float& x : scaled)
    if (x < least) x = kForbidden;
}

// The smallest set of the largest that reaches top_p of all.
void keep_nucleus(std::span<float> shares, float top_p) {
  if (top_p >= 1.f) return;
  std::vector<std::size_t> order;
  double total = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] <= 0.f) continue;
    order.push_back(i);
    total += shares[i];
  }
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return shares[i]; });
  double before = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    float& share = shares[order[i]];
    const bool is_in = i == 0 || before < top_p * total;
    before += share;
    if (!is_in) share = 0;
  }
}

}  // namespace

// Beyond the counters of the noise of any vocabulary entry.
double draft_noise(const DrawParams& params, std::int64_t position, DraftNoise use) {
  const std::uint64_t counter = (std::uint64_t{1} << 40) + static_cast<std::uint64_t>(use);
  const Philox random = philox(params.seed, counter, static_cast<std::uint64_t>(position));
  const std::uint64_t bits = (std::uint64_t{random.word[0]} << 21) ^ (random.word[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

void shares_of(std::span<const float> logits, const DrawParams& params,
               std::vector<float>& shares) {
  shares.assign(logits.begin(), logits.end());
  for (float& x : shares) x *= 1.f / params.temperature;
  const bool has_nan = std::ranges::any_of(shares, [](float x) { return x != x; });
  const float top = has_nan ? kForbidden : *std::ranges::max_element(shares);
  if (!std::isfinite(top)) return shares.clear();
  keep_top_k(shares, params.top_k);
  const float least = params.min_p > 0.f ? top + std::log(params.min_p) : kForbidden;
  for (float& x : shares) x = x < least ? 0.f : std::exp(x - top);
  keep_nucleus(shares, params.top_p);
  double total = 0;
  for (const float x : shares) total += x;
  for (float& x : shares) x = static_cast<float>(x / total);
}

TokenId token_at(std::span<const float> shares, double x) {
  double total = 0;
  for (const float share : shares) total += share;
  double passed = 0;
  TokenId last = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] <= 0.f) continue;
    last = static_cast<TokenId>(i);
    passed += shares[i];
    if (x * total < passed) break;
  }
  return last;
}

TokenId verified(TokenId draft, std::span<const float> target, std::span<const float> drafted,
                 const DrawParams& params, std::int64_t position) {
  const auto at = static_cast<std::size_t>(draft);
  const double keep = draft_noise(params, position, DraftNoise::keep);
  if (keep * drafted[at] < target[at]) return draft;
  std::vector<float> rest(target.size());
  double total = 0;
  for (std::size_t i = 0; i < rest.size(); ++i)
    total += rest[i] = std::max(target[i] - drafted[i], 0.f);
  // Equal up to rounding: then hardly anything is rejected, and p is as good.
  if (total <= 0) rest.assign(target.begin(), target.end());
  return token_at(rest, draft_noise(params, position, DraftNoise::replace));
}

}  // namespace quire
