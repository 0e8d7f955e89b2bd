#include "server/generation/request_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "server/generation/same_fields.h"

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
  const bool is_too_much = request.max_tokens && *request.max_tokens > room;
  if (room < 1 || (is_too_much && !request.fits_max_tokens)) {
    return too_long(limits, asked.value_or(1));
  }
  // As in vLLM with --generation-config auto, the file's number is no limit but what is not said.
  const std::int64_t otherwise = defaults.max_new_tokens ? *defaults.max_new_tokens : room;
  const std::int64_t most = defaults.most_new_tokens ? *defaults.most_new_tokens : room;
  return static_cast<int>(std::min({asked.value_or(otherwise), room, most}));
}

// What generation_config.json and the flags say.
SamplingParams default_params(const TextDefaults& defaults) {
  SamplingParams params;
  params.temperature = defaults.temperature.value_or(params.temperature);
  params.top_p = defaults.top_p.value_or(params.top_p);
  params.top_k = defaults.top_k.value_or(params.top_k);
  params.min_p = defaults.min_p.value_or(params.min_p);
  params.repetition_penalty = defaults.repetition_penalty.value_or(params.repetition_penalty);
  return params;
}

// A request's member into the parameter of the same name; what was left out leaves the default.
struct CopyMember {
  std::optional<Error> error = {};

  template <class To, class From>
  void operator()(std::string_view name, To& to, const std::optional<From>& from) {
    if (from) (*this)(name, to, *from);
  }
  void operator()(std::string_view name, int& to, std::int64_t from) {
    if (!std::in_range<int>(from))
      error = bad_request(fmt::format("{} is out of range", name), std::string(name));
    to = static_cast<int>(from);
  }
  // A seed; -1 is vLLM's word for none.
  void operator()(std::string_view, std::optional<std::uint64_t>& to, std::int64_t from) {
    to.reset();
    if (from != -1) to = static_cast<std::uint64_t>(from);
  }
  void operator()(std::string_view, float& to, double from) { to = static_cast<float>(from); }
  template <class Same>
  void operator()(std::string_view, Same& to, const Same& from) {
    to = from;
  }
};

}  // namespace

Result<SamplingParams> sampling_params(const openapi::GenerationRequest& request,
                                       const TextDefaults& defaults, const PromptLimits& limits) {
  const auto limit = max_tokens(request, defaults, limits);
  if (!limit) return limit.error();
  SamplingParams params = default_params(defaults);
  CopyMember copy;
  for_each_same_field(copy, params, SamplingParams::Fields(), request,
                      openapi::GenerationRequest::SamplingFields());
  if (copy.error) return *copy.error;
  params.max_tokens = *limit;
  // Ascending, and of equal keys the last one, as in Python's dict.
  std::map<TokenId, float> biases;
  for (const auto& [token, bias] : request.logit_bias) biases[token] = static_cast<float>(bias);
  params.logit_bias.assign(biases.begin(), biases.end());
  params.allowed_tokens = request.allowed_token_ids;
  return params;
}

}  // namespace quire
