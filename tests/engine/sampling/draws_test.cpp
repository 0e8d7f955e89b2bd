#include "tests/engine/sampling/sampler_bench.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace quire {
namespace {

using namespace testing;

struct DrawCase {
  const char* name;
  float temperature = 1;
  int top_k = 0;
  float top_p = 1;
  float min_p = 0;
};

// What the parameters leave of a distribution: temperature, then min_p, then top_k, then top_p.
std::vector<double> expected_distribution(const std::vector<float>& logits, const DrawCase& c) {
  std::vector<double> p = softmax(logits, c.temperature);
  const auto renormalize = [&p] {
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
  };
  const double top = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = x < c.min_p * top ? 0 : x;
  renormalize();
  std::vector<int> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return p[a] > p[b]; });
  if (c.top_k > 0) {
    for (std::size_t i = c.top_k; i < order.size(); ++i) p[order[i]] = 0;
    renormalize();
  }
  double mass = 0;
  for (const int token : order) {
    const double before = mass;
    mass += p[token];
    if (before >= c.top_p) p[token] = 0;
  }
  renormalize();
  return p;
}

TEST_CASE("draws follow the distribution that the parameters leave", "[engine][sampling]") {
  const auto c = GENERATE(values<DrawCase>({
      {"plain", 1},
      {"hot", 2},
      {"cold", 0.5f},
      {"top_k", 1, 5},
      {"top_p", 1, 0, 0.7f},
      {"min_p", 1, 0, 1, 0.2f},
      {"all", 1.5f, 12, 0.9f, 0.05f},
  }));
  INFO(c.name);
  SamplingParams params;
  params.temperature = c.temperature;
  params.top_k = c.top_k;
  params.top_p = c.top_p;
  params.min_p = c.min_p;
  params.seed = 1234;
  SamplerBench bench;
  Request& request = bench.add(params);
  const auto logits = falling(0.3f);
  constexpr int kDraws = 20'000;
  std::vector<int> counts(kVocab);
  for (int i = 0; i < kDraws; ++i) {
    ++counts[bench.sample_one(logits)];
    request.append(1);  // the next position draws anew
  }
  const auto expected = expected_distribution(logits, c);
  double chi_square = 0;
  int cells = 0;
  double pooled_expected = 0;
  int pooled_count = 0;
  for (int i = 0; i < kVocab; ++i) {
    if (expected[i] == 0) CHECK(counts[i] == 0);
    if (expected[i] * kDraws < 5) {  // too rare for a cell of its own
      pooled_expected += expected[i] * kDraws;
      pooled_count += counts[i];
      continue;
    }
    const double difference = counts[i] - expected[i] * kDraws;
    chi_square += difference * difference / (expected[i] * kDraws);
    ++cells;
  }
  if (pooled_expected > 5) {
    chi_square += std::pow(pooled_count - pooled_expected, 2) / pooled_expected;
    ++cells;
  }
  // Mean cells − 1, variance twice that; five standard deviations.
  const double freedom = cells - 1;
  CHECK(chi_square < freedom + 5 * std::sqrt(2 * freedom));
}

TEST_CASE("a seed repeats its draws, whatever else runs", "[engine][sampling]") {
  SamplingParams seeded;
  seeded.seed = 99;
  SamplingParams other;
  const std::vector<float> flat(kVocab, 0.f);
  const auto run = [&](bool alone, std::uint64_t engine_seed) {
    SamplerBench bench(8, engine_seed);
    if (!alone) bench.add(other);
    Request& request = bench.add(seeded);
    std::vector<TokenId> drawn;
    for (int i = 0; i < 50; ++i) {
      drawn.push_back(alone ? bench.sample_one(flat) : bench.sample({flat, flat})[1]);
      request.append(drawn.back());
    }
    return drawn;
  };
  CHECK(run(true, 0) == run(false, 1));
}

TEST_CASE("without a seed, requests differ and the engine's seed repeats", "[engine][sampling]") {
  const std::vector<float> flat(kVocab, 0.f);
  const auto run = [&](std::uint64_t engine_seed) {
    SamplerBench bench(8, engine_seed);
    Request& a = bench.add(SamplingParams());
    Request& b = bench.add(SamplingParams());
    std::vector<TokenId> drawn;
    for (int i = 0; i < 30; ++i) {
      const auto tokens = bench.sample({flat, flat});
      drawn.insert(drawn.end(), tokens.begin(), tokens.end());
      a.append(tokens[0]);
      b.append(tokens[1]);
    }
    return drawn;
  };
  const auto first = run(7);
  CHECK(first == run(7));
  CHECK(first != run(8));
  int equal = 0;
  for (std::size_t i = 0; i < first.size(); i += 2) equal += first[i] == first[i + 1];
  CHECK(equal < 10);
}

TEST_CASE("log-probabilities are those of the raw logits", "[engine][sampling]") {
  SamplerBench bench;
  auto with = greedy();
  with.logprobs = 3;
  with.logit_bias = {{2, 100.f}};  // decides the draw, not the report
  bench.add(greedy());
  bench.add(with);
  const auto logits = falling(0.25f);
  const auto tokens = bench.sample({logits, logits});
  CHECK(tokens == std::vector<TokenId>{0, 2});
  const LogprobRows& rows = bench.logprobs();
  REQUIRE(rows.k == 3);
  REQUIRE(rows.row_of.size() == 2);
  CHECK(rows.row_of[0] == -1);
  CHECK(rows.row_of[1] == 0);
  const auto p = softmax(logits, 1);
  for (int i = 0; i < 3; ++i) {
    CHECK(rows.top_ids[i] == i);
    CHECK(rows.top_values[i] == Approx(std::log(p[i])).margin(1e-5));
  }
  CHECK(rows.chosen_values[0] == Approx(std::log(p[2])).margin(1e-5));
  CHECK(rows.ranks[0] == 3);
}

TEST_CASE("as many log-probabilities as anybody asks for", "[engine][sampling]") {
  const auto asked = GENERATE(0, kMaxLogprobs);
  SamplerBench bench;
  auto params = greedy();
  params.logprobs = asked;
  bench.add(params);
  bench.sample({falling()});
  const int k = std::max(asked, 1);
  CHECK(bench.logprobs().k == k);
  CHECK(bench.logprobs().top_ids[k - 1] == k - 1);
}

}  // namespace
}  // namespace quire
