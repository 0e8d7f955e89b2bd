#include "tests/engine/sampling/sampler_bench.h"

#include <catch2/catch.hpp>
#include <algorithm>

#include "tests/support/pretend_device.h"

namespace quire {
namespace {

using namespace testing;

TEST_CASE("greedy takes the largest logit", "[engine][sampling]") {
  SamplerBench bench;
  bench.add(greedy());
  auto logits = falling();
  logits[17] = 3;
  CHECK(bench.sample_one(logits) == 17);
}

TEST_CASE("logit bias moves the choice", "[engine][sampling]") {
  SamplerBench bench;
  auto params = greedy();
  params.logit_bias = {{0, -100.f}, {9, 4.f}};
  bench.add(params);
  CHECK(bench.sample_one(falling()) == 1);  // 9 stands at -4.5 + 4
  CHECK(bench.sample_one(falling(0.4f)) == 9);
}

TEST_CASE("only allowed tokens are drawn", "[engine][sampling]") {
  SamplerBench bench;
  auto params = greedy();
  params.allowed_tokens = {40, 30, 50};
  bench.add(params);
  bench.add(greedy());
  CHECK(bench.sample({falling(), falling()}) == std::vector<TokenId>{30, 0});
}

TEST_CASE("before min_tokens nothing that would end is drawn", "[engine][sampling]") {
  SamplerBench bench;
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
  SamplerBench bench;
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
  SamplerBench bench;
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
  SamplerBench bench;
  SamplingParams params;
  params.temperature = temperature;
  bench.add(params);
  auto logits = falling();
  logits[17] = 3;
  CHECK(bench.sample_one(logits) == 17);
}

TEST_CASE("a bad word's last token is not drawn behind the others", "[engine][sampling]") {
  SamplerBench bench;
  auto params = greedy();
  params.bad_words = {{{0}}, {{1, 2, 3}}, {{2, 1}}};
  Request& request = bench.add(params, {1, 2});  // the prompt is not a part of a word
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
