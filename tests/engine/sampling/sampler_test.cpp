#include "engine/sampling/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <numeric>

#include "cpu/cpu_backend.h"
#include "tests/support/pretend_device.h"

namespace quire {
namespace {

constexpr int kVocab = 64;
constexpr TokenId kEos = 5;

// A sampler over rows of given logits; each row is a request in the slot of its number.
class Bench {
 public:
  explicit Bench(int max_rows = 8, std::uint64_t seed = 0)
      : device_(make_cpu_device()),
        ops_(make_cpu_ops({.threads = 1})),
        sampler_(*device_, *ops_, {.max_num_seqs = max_rows, .vocab_size = kVocab, .seed = seed}) {}

  Request& add(SamplingParams params, std::vector<TokenId> prompt = {1}) {
    RequestInit init;
    init.id = RequestId{requests_.size() + 1};
    init.prompt = std::move(prompt);
    init.sampling = std::move(params);
    init.eos_token_ids = {kEos};
    sampler_.reset(static_cast<int>(requests_.size()));
    return requests_.emplace_back(std::move(init));
  }

  // One token per request, from one row of logits each.
  std::vector<TokenId> sample(const std::vector<std::vector<float>>& logits) {
    sampler_.begin_step(requests_.size());
    std::vector<float> flat;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      sampler_.add_row(static_cast<int>(i), requests_[i], requests_[i].num_tokens());
      flat.insert(flat.end(), logits[i].begin(), logits[i].end());
    }
    const auto rows = static_cast<std::int64_t>(requests_.size());
    std::vector<TokenId> tokens(requests_.size());
    sampler_.sample(TensorView(tokens.data(), DType::i32, {rows}),
                    TensorView(flat.data(), DType::f32, {rows, kVocab}), device_->stream());
    return tokens;
  }

  TokenId sample_one(const std::vector<float>& logits) { return sample({logits})[0]; }
  const LogprobRows& logprobs() const { return sampler_.logprobs(sampler_.turn()); }
  const Sampler& sampler() const { return sampler_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Sampler sampler_;
  std::deque<Request> requests_;
};

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// Falling from token 0 on: the most probable is 0, the next 1, …
std::vector<float> falling(float step = 0.5f) {
  std::vector<float> logits(kVocab);
  for (int i = 0; i < kVocab; ++i) logits[i] = -step * static_cast<float>(i);
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p(logits.size());
  const double top = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::exp((logits[i] - top) / temperature);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

TEST_CASE("greedy takes the largest logit", "[engine][sampling]") {
  Bench bench;
  bench.add(greedy());
  auto logits = falling();
  logits[17] = 3;
  CHECK(bench.sample_one(logits) == 17);
}

TEST_CASE("logit bias moves the choice", "[engine][sampling]") {
  Bench bench;
  auto params = greedy();
  params.logit_bias = {{0, -100.f}, {9, 4.f}};
  bench.add(params);
  CHECK(bench.sample_one(falling()) == 1);  // 9 stands at -4.5 + 4
  CHECK(bench.sample_one(falling(0.4f)) == 9);
}

TEST_CASE("only allowed tokens are drawn", "[engine][sampling]") {
  Bench bench;
  auto params = greedy();
  params.allowed_tokens = {40, 30, 50};
  bench.add(params);
  bench.add(greedy());
  CHECK(bench.sample({falling(), falling()}) == std::vector<TokenId>{30, 0});
}

TEST_CASE("before min_tokens nothing that would end is drawn", "[engine][sampling]") {
  Bench bench;
  auto params = greedy();
  params.min_tokens = 2;
  params.stop_token_ids = {4};
  Request& request = bench.add(params);
  auto logits = falling();
  logits[kEos] = 10;
  logits[4] = 9;
  CHECK(bench.sample_one(logits) == 0);
  request.append(0);
  CHECK(bench.sample_one(logits) == 0);
  request.append(0);
  CHECK(bench.sample_one(logits) == kEos);
}

TEST_CASE("a request that ignores its end may draw it before min_tokens", "[engine][sampling]") {
  Bench bench;
  auto params = greedy();
  params.min_tokens = 2;
  params.ignore_eos = true;
  bench.add(params);
  auto logits = falling();
  logits[kEos] = 10;
  CHECK(bench.sample_one(logits) == kEos);
}

// vLLM: seen in prompt or output: repetition divides positive and multiplies negative logits; then
// count in the output times frequency, and presence once, are subtracted.
float penalized(float logit, bool seen, int output_count, const SamplingParams& p) {
  if (seen) logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  logit -= static_cast<float>(output_count) * p.frequency_penalty;
  if (output_count > 0) logit -= p.presence_penalty;
  return logit;
}

TEST_CASE("penalties follow what was seen so far", "[engine][sampling]") {
  SamplingParams params = greedy();
  params.repetition_penalty = 1.5f;
  params.frequency_penalty = 0.4f;
  params.presence_penalty = 0.3f;
  Bench bench;
  Request& request = bench.add(params, {3, 7, 3});
  std::vector<int> outputs(kVocab);
  for (int step = 0; step < 40; ++step) {
    std::vector<float> logits(kVocab);
    for (int i = 0; i < kVocab; ++i) {
      logits[i] = 2.f * std::sin(static_cast<float>(i * 7 + step % 3));
    }
    std::vector<float> expected(kVocab);
    for (int i = 0; i < kVocab; ++i) {
      const bool seen = outputs[i] > 0 || i == 3 || i == 7;
      expected[i] = penalized(logits[i], seen, outputs[i], params);
    }
    const auto best =
        static_cast<TokenId>(std::max_element(expected.begin(), expected.end()) - expected.begin());
    const TokenId token = bench.sample_one(logits);
    REQUIRE(token == best);
    CHECK_FALSE(bench.sampler().needs_latest_tokens());
    request.append(token);
    ++outputs[token];
  }
  CHECK(std::count_if(outputs.begin(), outputs.end(), [](int n) { return n > 0; }) > 5);
}

TEST_CASE("a slot's next request starts without the last one's tokens", "[engine][sampling]") {
  SamplingParams params = greedy();
  params.presence_penalty = 1;
  auto device = make_cpu_device();
  auto ops = make_cpu_ops({.threads = 1});
  Sampler sampler(*device, *ops, {.max_num_seqs = 1, .vocab_size = kVocab});
  const auto draw = [&](const Request& request) {
    std::vector<float> logits = falling();
    TokenId token = -1;
    sampler.begin_step(1);
    sampler.add_row(0, request, request.num_tokens());
    sampler.sample(TensorView(&token, DType::i32, {1}),
                   TensorView(logits.data(), DType::f32, {1, kVocab}), device->stream());
    return token;
  };
  for (std::uint64_t id : {1, 2}) {
    RequestInit init;
    init.id = RequestId{id};
    init.prompt = {60};
    init.sampling = params;
    Request request(std::move(init));
    sampler.reset(0);
    CHECK(draw(request) == 0);
    request.append(0);
    CHECK(draw(request) == 1);  // 0 fell by 1, to below -0.5
  }
}

TEST_CASE("temperatures too small to divide by are greedy", "[engine][sampling]") {
  const float temperature = GENERATE(1e-38f, 1e-30f, 1e-6f, 0.0001f);
  Bench bench;
  SamplingParams params;
  params.temperature = temperature;
  bench.add(params);
  auto logits = falling();
  logits[17] = 3;
  CHECK(bench.sample_one(logits) == 17);
}

TEST_CASE("a bad word's last token is not drawn behind the others", "[engine][sampling]") {
  Bench bench;
  auto params = greedy();
  params.bad_words = {{{0}}, {{1, 2, 3}}, {{2, 1}}};
  Request& request = bench.add(params, {1, 2});  // the prompt is no part of a word
  std::vector<TokenId> drawn;
  for (const TokenId wished : {1, 2, 3, 4, 1, 3}) {
    auto logits = falling();
    logits[wished] = 9;
    drawn.push_back(bench.sample_one(logits));
    request.append(drawn.back());
  }
  CHECK(drawn == std::vector<TokenId>{1, 2, 2, 4, 1, 3});
  CHECK(bench.sampler().needs_latest_tokens());
}

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
  Bench bench;
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
    Bench bench(8, engine_seed);
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
    Bench bench(8, engine_seed);
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
  Bench bench;
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
  Bench bench;
  auto params = greedy();
  params.logprobs = asked;
  bench.add(params);
  bench.sample({falling()});
  const int k = std::max(asked, 1);
  CHECK(bench.logprobs().k == k);
  CHECK(bench.logprobs().top_ids[k - 1] == k - 1);
}

// One entry for every token of every row is four times what a piece holds.
TEST_CASE("edits that are longer than the memory they pass through", "[engine][sampling]") {
  constexpr int kLargeVocab = 1 << 17, kRows = 4;
  const auto device = std::make_unique<test::PretendDevice>(make_cpu_device(), nullptr);
  const auto ops = make_cpu_ops({.threads = 1});
  Sampler sampler(*device, *ops, {.max_num_seqs = kRows, .vocab_size = kLargeVocab});
  std::deque<Request> requests;
  std::vector<float> logits(std::size_t{kRows} * kLargeVocab);
  sampler.begin_step(kRows);
  for (int row = 0; row < kRows; ++row) {
    RequestInit init;
    init.prompt.resize(kLargeVocab - 1 - row);  // all but the last tokens are seen
    std::iota(init.prompt.begin(), init.prompt.end(), 0);
    init.sampling = greedy();
    init.sampling.repetition_penalty = 2;
    init.sampling.allowed_tokens = {TokenId{7 * row}, kLargeVocab - 1 - row};
    const Request& request = requests.emplace_back(std::move(init));
    float* const of_row = &logits[std::size_t{kLargeVocab} * row];
    of_row[7 * row] = 3;  // allowed, and seen: 1.5
    of_row[kLargeVocab - 1 - row] = 2;
    of_row[100] = 9;  // not allowed
    sampler.add_row(row, request, request.num_tokens());
  }
  std::vector<TokenId> tokens(kRows);
  const MemoryUses before = device->ledger().uses();
  sampler.sample(TensorView(tokens.data(), DType::i32, {kRows}),
                 TensorView(logits.data(), DType::f32, {kRows, kLargeVocab}), device->stream());
  for (int row = 0; row < kRows; ++row) CHECK(tokens[row] == kLargeVocab - 1 - row);
  CHECK(device->ledger().uses() == before);
}

}  // namespace
}  // namespace quire
