#include "server/generation/request_params.h"

#include <catch2/catch.hpp>

#include "openapi/dto_json.h"
#include "openapi/responses.h"

using namespace quire;

namespace {

constexpr PromptLimits kLimits{.prompt_tokens = 100, .max_model_len = 1000};

std::string refusal(const openapi::GenerationRequest& request, PromptLimits limits = kLimits) {
  const auto params = sampling_params(request, {}, limits);
  return params ? "accepted" : params.error().field;
}

}  // namespace

TEST_CASE("max_tokens is what was asked, else what the context leaves", "[server][sampling]") {
  openapi::GenerationRequest request;
  CHECK(sampling_params(request, {}, kLimits)->max_tokens == 900);
  PromptLimits completion = kLimits;
  completion.default_max_tokens = 16;
  CHECK(sampling_params(request, {}, completion)->max_tokens == 16);
  TextDefaults model;
  model.max_new_tokens = 50;
  CHECK(sampling_params(request, model, kLimits)->max_tokens == 50);
  model.max_new_tokens = 5;
  CHECK(sampling_params(request, model, completion)->max_tokens == 16);
  request.max_tokens = 900;
  CHECK(sampling_params(request, model, kLimits)->max_tokens == 900);
  CHECK(sampling_params(request, {}, kLimits)->max_tokens == 900);
  completion.prompt_tokens = 990;
  request.max_tokens.reset();
  CHECK(sampling_params(request, {}, completion)->max_tokens == 10);
  model.most_new_tokens = 7;
  request.max_tokens = 8;
  CHECK(sampling_params(request, model, kLimits)->max_tokens == 7);
}

TEST_CASE("what cannot fit the context is refused with the numbers", "[server][sampling]") {
  openapi::GenerationRequest request;
  request.max_tokens = 901;
  const auto params = sampling_params(request, {}, kLimits);
  REQUIRE(params.has_error());
  CHECK(params.error().detail ==
        "This model's maximum context length is 1000 tokens. However, you requested 901 output "
        "tokens "
        "and your prompt contains 100 input tokens, for a total of 1001 tokens. Please reduce the "
        "length of the input prompt or the number of requested output tokens.");
  request.fits_max_tokens = true;
  CHECK(sampling_params(request, {}, kLimits)->max_tokens == 900);
  CHECK(refusal(request, {.prompt_tokens = 1000, .max_model_len = 1000}) == "input_tokens");
  request.max_tokens = 1001;
  CHECK(refusal(request) == "max_tokens");
  request.max_tokens = 100'000'000'000;
  CHECK(refusal(request) == "max_tokens");
  request.max_tokens = 0;
  CHECK(refusal(request) == "max_tokens");
  request.max_tokens = -5;
  CHECK(refusal(request) == "max_tokens");
  request.max_tokens.reset();
  CHECK(refusal(request, {.prompt_tokens = 1000, .max_model_len = 1000}) == "input_tokens");
}

TEST_CASE("the request's word counts before the model's", "[server][sampling]") {
  TextDefaults model;
  model.temperature = 0.2f;
  model.top_p = 0.9f;
  openapi::GenerationRequest request;
  request.temperature = 0;
  request.seed = -2;
  request.logit_bias = {{7, 1.0}, {3, 2.0}, {7, 3.0}};
  const auto params = sampling_params(request, model, kLimits);
  REQUIRE(params.has_value());
  CHECK(params->temperature == 0);
  CHECK(params->top_p == 0.9f);
  CHECK(params->seed == ~std::uint64_t{1});
  request.seed = -1;
  CHECK_FALSE(sampling_params(request, model, kLimits)->seed.has_value());
  CHECK(params->logit_bias == std::vector<std::pair<TokenId, float>>{{3, 2.f}, {7, 3.f}});
}

TEST_CASE("a number that no engine could take is refused by name", "[server][sampling]") {
  openapi::GenerationRequest request;
  request.top_k = std::int64_t{1} << 40;
  CHECK(refusal(request) == "top_k");
  request = {};
  request.min_tokens = std::int64_t{1} << 40;
  CHECK(refusal(request) == "min_tokens");
}

TEST_CASE("Messages and Responses take what the context has left", "[server][sampling]") {
  const std::string messages = R"({"max_tokens":901,"messages":[{"role":"user","content":"a"}]})";
  const auto tokens = [](const auto& request) {
    REQUIRE(request.has_value());
    const auto params = sampling_params(*request, {}, kLimits);
    return params ? params->max_tokens : 0;
  };
  CHECK(tokens(openapi::parse_messages(messages)) == 900);
  CHECK(tokens(openapi::parse_responses(R"({"max_output_tokens":901,"input":"a"})")) == 900);
  CHECK(tokens(openapi::parse_chat_completion(messages)) == 0);
}
