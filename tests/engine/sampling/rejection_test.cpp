// What comes out of rejection sampling is distributed as the target, whatever the draft is.

#include "cpu/cpu_drafts.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "cpu/cpu_backend.h"

namespace quire::cpu {
namespace {

constexpr int kVocab = 24, kDraws = 60000;

std::vector<float> random_logits(std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1.5f);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(random);
  return logits;
}

// Chi-square of counts against shares, as a normal variable (Wilson and Hilferty): above 4 once in
// thirty thousand draws from the shares.
double misfit(std::span<const int> counts, std::span<const float> shares) {
  double total = 0, sum = 0;
  int cells = 0;
  for (const int count : counts) total += count;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * shares[i];
    if (shares[i] <= 0.f) {
      if (counts[i] > 0) return 1e9;
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++cells;
  }
  if (cells < 2) return 0;
  const double spread = 2.0 / (9 * (cells - 1));
  return (std::cbrt(sum / (cells - 1)) - 1 + spread) / std::sqrt(spread);
}

struct Outcome {
  std::vector<int> drafts = std::vector<int>(kVocab), tokens = std::vector<int>(kVocab);
  int kept = 0;
};

// Each draw has a request of its own, as if it had another seed.
Outcome draw(std::span<const float> p, std::span<const float> q, bool verifies = true) {
  Outcome outcome;
  for (int i = 0; i < kDraws; ++i) {
    const auto noise = [&](DraftNoise use) {
      return draft_noise(static_cast<std::uint64_t>(i) * 7919, 5, use);
    };
    const std::int32_t draft = token_at(q, noise(DraftNoise::draft));
    const std::int32_t token =
        verifies ? verified(draft, p, q, noise(DraftNoise::keep), noise(DraftNoise::replace))
                 : draft;
    ++outcome.drafts[static_cast<std::size_t>(draft)];
    ++outcome.tokens[static_cast<std::size_t>(token)];
    outcome.kept += token == draft;
  }
  return outcome;
}

TEST_CASE("what is kept or replaced is distributed as the target", "[sampling][drafts]") {
  std::mt19937 random(4);
  const ShareFilter filters[] = {{.temperature = 1},
                                 {.temperature = 0.6f, .top_p = 0.9f},
                                 {.temperature = 1.3f, .top_k = 6},
                                 {.temperature = 0.9f, .min_p = 0.1f},
                                 {.temperature = 1, .top_p = 0.8f, .min_p = 0.02f, .top_k = 10}};
  for (const ShareFilter& params : filters) {
    INFO("temperature " << params.temperature << ", top_k " << params.top_k << ", top_p "
                        << params.top_p);
    std::vector<float> target, drafted;
    shares_of(random_logits(random), params, target);
    shares_of(random_logits(random), params, drafted);
    const Outcome outcome = draw(target, drafted);
    CHECK(misfit(outcome.tokens, target) < 4);
    CHECK(misfit(outcome.drafts, drafted) < 4);
    CHECK(misfit(draw(target, drafted, false).tokens, target) > 20);
    double overlap = 0;
    for (int i = 0; i < kVocab; ++i) overlap += std::min(target[i], drafted[i]);
    CHECK(outcome.kept / static_cast<double>(kDraws) == Approx(overlap).margin(0.02));
  }
}

TEST_CASE("a draft as good as the target is always kept", "[sampling][drafts]") {
  std::mt19937 random(9);
  std::vector<float> shares;
  shares_of(random_logits(random), {.temperature = 1}, shares);
  CHECK(draw(shares, shares).kept == kDraws);
}

TEST_CASE("shares are those that the backend draws from", "[sampling][drafts]") {
  std::mt19937 random(2);
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 1});
  for (const ShareFilter& params : {ShareFilter{.temperature = 0.7f, .top_p = 0.85f, .top_k = 9},
                                    ShareFilter{.temperature = 1.2f, .min_p = 0.05f},
                                    ShareFilter{.temperature = 1, .top_p = 0.5f}}) {
    std::vector<float> logits = random_logits(random);
    logits[7] = logits[3];  // a tie
    std::vector<float> shares;
    shares_of(logits, params, shares);
    std::vector<int> counts(kVocab);
    for (int i = 0; i < kDraws / 2; ++i) {
      std::vector<float> row = logits;
      float temperature = params.temperature, top_p = params.top_p, min_p = params.min_p;
      std::int32_t top_k = params.top_k, token = 0;
      std::uint64_t seed = static_cast<std::uint64_t>(i);
      std::int64_t position = 3;
      ops->sample({&token, DType::i32, {1}}, {row.data(), DType::f32, {1, kVocab}},
                  {.temperature = {&temperature, DType::f32, {1}},
                   .top_k = {&top_k, DType::i32, {1}},
                   .top_p = {&top_p, DType::f32, {1}},
                   .min_p = {&min_p, DType::f32, {1}},
                   .seed = {&seed, DType::u64, {1}},
                   .position = {&position, DType::i64, {1}}},
                  device->stream());
      ++counts[static_cast<std::size_t>(token)];
    }
    CHECK(misfit(counts, shares) < 4);
  }
}

TEST_CASE("from no numbers nothing is drawn", "[sampling][drafts]") {
  std::vector<float> logits(kVocab, 1.f), shares(3);
  logits[5] = std::nanf("");
  shares_of(logits, {.temperature = 1}, shares);
  CHECK(shares.empty());
}

}  // namespace
}  // namespace quire::cpu
