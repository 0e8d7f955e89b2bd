#include "server/generation/request_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace quire {

namespace {

Error bad_request(std::string detail, std::string field) {
  return {ErrorCode::invalid_argument, std::move(detail), std::move(field)};
}

Error too_long(const PromptLimits& limits, std::int64_t output_tokens) {
  return bad_request(
      fmt::format("This model's maximum context length is {} tokens. However, you requested {} "
                  "output tokens and your prompt contains {} input tokens, for a total of {} "
                  "tokens. Please reduce the length of the input prompt or the number of requested "
                  "output tokens.",
                  limits.max_model_len, output_tokens, limits.prompt_tokens,
                  output_tokens + limits.prompt_tokens),
      "input_tokens");
}

Result<int> max_tokens(const openapi::GenerationRequest& request, const TextDefaults& defaults,
                       const PromptLimits& limits) {
  const std::int64_t room = limits.max_model_len - limits.prompt_tokens;
  const auto asked = request.max_tokens ? request.max_tokens : limits.default_max_tokens;
  const std::string& name = request.max_tokens_name;
  if (limits.prompt_only) return room < 1 ? Result<int>(too_long(limits, 1)) : 1;
  if (request.max_tokens && *request.max_tokens < 1) {
    return bad_request(fmt::format("{} must be at least 1, got {}", name, *request.max_tokens),
                       name);
  }
  if (request.max_tokens && *request.max_tokens > limits.max_model_len) {
    return bad_request(fmt::format("{} is {}, but this model's maximum context length is "
                                   "{} tokens, and your prompt contains {} of them",
                                   name, *request.max_tokens, limits.max_model_len,
                                   limits.prompt_tokens),
                       name);
  }
  if (room < 1 || (request.max_tokens && *request.max_tokens > room)) {
    return too_long(limits, asked.value_or(1));
  }
  std::int64_t allowed = std::min(asked.value_or(room), room);
  if (defaults.max_new_tokens) allowed = std::min<std::int64_t>(allowed, *defaults.max_new_tokens);
  return static_cast<int>(allowed);
}

template <class T>
T pick(const std::optional<double>& asked, const std::optional<T>& by_default, T otherwise) {
  return asked ? static_cast<T>(*asked) : by_default.value_or(otherwise);
}

Result<int> to_int(std::string_view field, std::int64_t value) {
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    return bad_request(fmt::format("{} is out of range", field), std::string(field));
  }
  return static_cast<int>(value);
}

}  // namespace

Result<SamplingParams> sampling_params(const openapi::GenerationRequest& request,
                                       const TextDefaults& defaults, const PromptLimits& limits) {
  const auto limit = max_tokens(request, defaults, limits);
  if (!limit) return limit.error();
  const auto top_k = to_int("top_k", request.top_k.value_or(defaults.top_k.value_or(0)));
  if (!top_k) return top_k.error();
  const auto min_tokens = to_int("min_tokens", request.min_tokens);
  if (!min_tokens) return min_tokens.error();

  SamplingParams params;
  params.max_tokens = *limit;
  params.min_tokens = *min_tokens;
  params.temperature = pick(request.temperature, defaults.temperature, 1.f);
  params.top_p = pick(request.top_p, defaults.top_p, 1.f);
  params.top_k = *top_k;
  params.min_p = pick(request.min_p, defaults.min_p, 0.f);
  params.repetition_penalty = pick(request.repetition_penalty, defaults.repetition_penalty, 1.f);
  params.presence_penalty = static_cast<float>(request.presence_penalty);
  params.frequency_penalty = static_cast<float>(request.frequency_penalty);
  if (request.seed) params.seed = static_cast<std::uint64_t>(*request.seed);
  // Ascending, and of equal keys the last one, as in Python's dict.
  std::map<TokenId, float> biases;
  for (const auto& [token, bias] : request.logit_bias) biases[token] = static_cast<float>(bias);
  params.logit_bias.assign(biases.begin(), biases.end());
  params.allowed_tokens = request.allowed_token_ids;
  params.stop_token_ids = request.stop_token_ids;
  params.ignore_eos = request.ignore_eos;
  return params;
}

}  // namespace quire
