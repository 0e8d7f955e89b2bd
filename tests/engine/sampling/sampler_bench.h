#pragma once
// What the tests of the sampler share: rows of given logits, sampled by a sampler of their own.

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/sampling/sampler.h"

namespace quire::testing {

inline constexpr int kVocab = 64;
inline constexpr TokenId kEos = 5;

// A sampler over rows of given logits; each row is a request in the slot of its number.
class SamplerBench {
 public:
  explicit SamplerBench(int max_rows = 8, std::uint64_t seed = 0)
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

inline SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// Falling from token 0 on: the most probable is 0, the next 1, …
inline std::vector<float> falling(float step = 0.5f) {
  std::vector<float> logits(kVocab);
  for (int i = 0; i < kVocab; ++i) logits[i] = -step * static_cast<float>(i);
  return logits;
}

inline std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p(logits.size());
  const double top = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::exp((logits[i] - top) / temperature);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

}  // namespace quire::testing
