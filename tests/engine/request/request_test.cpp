#include "engine/request/request.h"

#include <catch2/catch.hpp>
#include <limits>

namespace quire {
namespace {

RequestInit init(std::vector<TokenId> prompt) {
  RequestInit init;
  init.prompt = std::move(prompt);
  init.sampling.max_tokens = 3;
  init.eos_token_ids = {7};
  return init;
}

std::vector<std::optional<FinishReason>> reasons(Request& request,
                                                 const std::vector<TokenId>& tokens,
                                                 int max_model_len = 100) {
  std::vector<std::optional<FinishReason>> list;
  for (const TokenId token : tokens) {
    request.append(token);
    list.push_back(request.stop_check(max_model_len));
  }
  return list;
}

using Reasons = std::vector<std::optional<FinishReason>>;
constexpr auto kGoOn = std::nullopt;

}  // namespace

TEST_CASE("A request ends at an end token, a stop token, max_tokens or the context", "[request]") {
  SECTION("end of sequence, even with the last token allowed") {
    Request request(init({1, 2}));
    CHECK(reasons(request, {3, 4, 7}) == Reasons{kGoOn, kGoOn, FinishReason::stop});
    CHECK(request.ended_by_token());
  }
  SECTION("a prompt that holds the end token does not end anything") {
    Request request(init({1, 7}));
    CHECK(request.stop_check(100) == std::nullopt);
    CHECK(reasons(request, {3}) == Reasons{kGoOn});
  }
  SECTION("stop tokens, few and many") {
    const int num_stops = GENERATE(1, 3, 9);
    RequestInit own = init({1});
    for (int i = 0; i < num_stops; ++i) own.sampling.stop_token_ids.push_back(50 + i);
    Request request(std::move(own));
    CHECK(reasons(request, {3, 49 + num_stops}) == Reasons{kGoOn, FinishReason::stop});
  }
  SECTION("ignore_eos") {
    RequestInit own = init({1});
    own.sampling.ignore_eos = true;
    Request request(std::move(own));
    CHECK(reasons(request, {7, 7, 7}) == Reasons{kGoOn, kGoOn, FinishReason::length});
  }
  SECTION("min_tokens holds back end tokens, not the context") {
    RequestInit own = init({1, 2});
    own.sampling.min_tokens = 3;
    Request request(std::move(own));
    CHECK(reasons(request, {7, 7}, 4) == Reasons{kGoOn, FinishReason::length});
  }
}

TEST_CASE("Sampling parameters out of range are named", "[request]") {
  struct Case {
    const char* field;
    void (*break_it)(SamplingParams&);
  };
  const auto c = GENERATE(values<Case>({
      {"/temperature", [](SamplingParams& p) { p.temperature = -0.1f; }},
      {"/temperature",
       [](SamplingParams& p) { p.temperature = std::numeric_limits<float>::quiet_NaN(); }},
      {"/top_p", [](SamplingParams& p) { p.top_p = 0; }},
      {"/top_p", [](SamplingParams& p) { p.top_p = 1.01f; }},
      {"/top_k", [](SamplingParams& p) { p.top_k = -2; }},
      {"/min_p", [](SamplingParams& p) { p.min_p = 2; }},
      {"/presence_penalty", [](SamplingParams& p) { p.presence_penalty = -3; }},
      {"/frequency_penalty", [](SamplingParams& p) { p.frequency_penalty = 2.5f; }},
      {"/repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0; }},
      {"/logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{100, 1.f}};
       }},
      {"/logit_bias",
       [](SamplingParams& p) {
         p.logit_bias = {{1, std::numeric_limits<float>::infinity()}};
       }},
      {"/allowed_token_ids", [](SamplingParams& p) { p.allowed_tokens = {-1}; }},
      {"/stop_token_ids", [](SamplingParams& p) { p.stop_token_ids = {100}; }},
      {"/max_tokens", [](SamplingParams& p) { p.max_tokens = 0; }},
      {"/min_tokens", [](SamplingParams& p) { p.min_tokens = 17; }},
      {"/logprobs", [](SamplingParams& p) { p.logprobs = 21; }},
      {"/prompt_logprobs", [](SamplingParams& p) { p.prompt_logprobs = -1; }},
  }));
  INFO(c.field);
  SamplingParams params;
  CHECK(validate(params, 100).has_value());
  c.break_it(params);
  const auto result = validate(params, 100);
  REQUIRE(!result);
  CHECK(result.error().code == ErrorCode::invalid_argument);
  CHECK(result.error().field == c.field);
}

}  // namespace quire
