#include "engine/request/sampling_params.h"

#include <cmath>
#include <string>

namespace quire {
namespace {

constexpr std::size_t kMaxStopTokens = 4096;

Error out_of_range(std::string_view field, const std::string& rule) {
  return {ErrorCode::invalid_argument, std::string(field) + " must be " + rule,
          std::string("/").append(field)};
}

// The field's complaint, or nothing; NaN fails both comparisons.
std::optional<Error> check_range(std::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return std::nullopt;
  const auto text = [](double number) {
    std::string digits = std::to_string(number);
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
    return digits;
  };
  return out_of_range(field, "from " + text(low) + " to " + text(high));
}

template <auto Member, auto Low, auto High, class... Others>
std::optional<Error> check_ranges(const SamplingParams& p,
                                  RangeList<FieldRange<Member, Low, High>, Others...>) {
  constexpr std::string_view kName = spelling_of<Member>();
  if (auto e = check_range(kName, p.*Member, Low, High)) return e;
  if constexpr (sizeof...(Others) > 0) return check_ranges(p, RangeList<Others...>());
  return std::nullopt;
}

std::optional<Error> check_token(const char* field, TokenId token, int vocab_size) {
  if (token >= 0 && token < vocab_size) return std::nullopt;
  return Error{ErrorCode::invalid_argument,
               std::string(field) + " holds token " + std::to_string(token) +
                   ", the vocabulary has " + std::to_string(vocab_size),
               std::string("/").append(field)};
}

std::optional<Error> check_choice(const SamplingParams& p) {
  if (auto e = check_ranges(p, SamplingParams::Ranges())) return e;
  if (!(p.top_p > 0 && p.top_p <= 1)) return out_of_range("top_p", "above 0 and at most 1");
  if (p.top_k < -1) return out_of_range("top_k", "−1 or 0 (off) or positive");
  if (!(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty))) {
    return out_of_range("repetition_penalty", "above 0");
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (!std::isfinite(bias)) return out_of_range("logit_bias", "finite");
  }
  return std::nullopt;
}

std::optional<Error> check_end(const SamplingParams& p) {
  if (p.max_tokens < 1) return out_of_range("max_tokens", "at least 1");
  if (p.min_tokens < 0) return out_of_range("min_tokens", "at least 0");
  if (p.min_tokens > p.max_tokens) {
    return out_of_range("min_tokens", "at most max_tokens (" + std::to_string(p.max_tokens) + ")");
  }
  if (p.stop_token_ids.size() > kMaxStopTokens) {
    return out_of_range("stop_token_ids", "at most " + std::to_string(kMaxStopTokens) + " tokens");
  }
  for (const auto& [field, count] :
       {std::pair{"logprobs", p.logprobs}, std::pair{"prompt_logprobs", p.prompt_logprobs}}) {
    if (count && (*count < 0 || *count > kMaxLogprobs)) {
      return out_of_range(field, "from 0 to " + std::to_string(kMaxLogprobs));
    }
  }
  return std::nullopt;
}

std::optional<Error> check_tokens(const SamplingParams& p, int vocab_size) {
  for (const auto& [token, bias] : p.logit_bias) {
    if (auto e = check_token("logit_bias", token, vocab_size)) return e;
  }
  for (const TokenId token : p.allowed_tokens) {
    if (auto e = check_token("allowed_token_ids", token, vocab_size)) return e;
  }
  for (const TokenWord& word : p.bad_words) {
    if (word.tokens.empty()) return out_of_range("bad_words", "words of at least one token");
    for (const TokenId token : word.tokens) {
      if (auto e = check_token("bad_words", token, vocab_size)) return e;
    }
  }
  for (const TokenId token : p.stop_token_ids) {
    if (auto e = check_token("stop_token_ids", token, vocab_size)) return e;
  }
  return std::nullopt;
}

}  // namespace

Result<void> validate(const SamplingParams& params, int vocab_size) {
  if (auto error = check_choice(params)) return *error;
  if (auto error = check_end(params)) return *error;
  if (auto error = check_tokens(params, vocab_size)) return *error;
  return {};
}

}  // namespace quire
