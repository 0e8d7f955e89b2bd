#pragma once
// How one request's tokens are chosen and when it ends. A plain struct: the API fills it,
// validate() checks it once, everyone below trusts it.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/structured/constraint_spec.h"

namespace quire {

inline constexpr int kMaxLogprobs = 20;  // start-up reserves memory for this many

// A token and its bias.
using TokenBias = std::pair<TokenId, float>;
template <>
struct FieldsOf<TokenBias> {
  using type = FieldList<&TokenBias::first, &TokenBias::second>;
};

// Consecutive tokens.
struct TokenWord {
  std::vector<TokenId> tokens;

  using Fields = FieldList<&TokenWord::tokens>;
};

// A member and the least and the greatest number that it may be.
template <auto Member, auto Low, auto High>
struct FieldRange {};
template <class... Ranges>
struct RangeList {};

struct SamplingParams {
  // Choice. temperature below 1e-5 is greedy; below 0.01 it counts as 0.01.
  float temperature = 1;
  float top_p = 1;
  int top_k = 0;  // 0 or −1: off
  float min_p = 0;
  std::optional<std::uint64_t> seed;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  std::vector<TokenBias> logit_bias;         // ascending by token, each once
  std::vector<TokenId> allowed_tokens;       // empty: all
  std::vector<TokenWord> bad_words;          // that the output may not contain
  std::optional<ConstraintSpec> constraint;  // what the whole output must match

  // End. Stop strings are the front end's: it sees text.
  int max_tokens = 16;  // output tokens
  int min_tokens = 0;   // nothing stops the request before it has this many
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;

  // Log-probabilities of this many most probable tokens beside the chosen one.
  std::optional<int> logprobs;
  std::optional<int> prompt_logprobs;

  bool skip_reading_prefix_cache = false;  // still fills it

  // Every prompt position's logits are wanted, so none may come from the cache.
  bool reads_prefix_cache() const { return !skip_reading_prefix_cache && !prompt_logprobs; }

  using Fields =
      FieldList<&SamplingParams::temperature, &SamplingParams::top_p, &SamplingParams::top_k,
                &SamplingParams::min_p, &SamplingParams::seed, &SamplingParams::presence_penalty,
                &SamplingParams::frequency_penalty, &SamplingParams::repetition_penalty,
                &SamplingParams::logit_bias, &SamplingParams::allowed_tokens,
                &SamplingParams::max_tokens, &SamplingParams::min_tokens,
                &SamplingParams::stop_token_ids, &SamplingParams::ignore_eos,
                &SamplingParams::logprobs, &SamplingParams::prompt_logprobs,
                &SamplingParams::skip_reading_prefix_cache, &SamplingParams::bad_words,
                &SamplingParams::constraint>;
  using Ranges = RangeList<FieldRange<&SamplingParams::temperature, 0, 100>,
                           FieldRange<&SamplingParams::min_p, 0, 1>,
                           FieldRange<&SamplingParams::presence_penalty, -2, 2>,
                           FieldRange<&SamplingParams::frequency_penalty, -2, 2>>;
};

// The first field that is out of range, by its API name; token ids are checked against vocab_size.
Result<void> validate(const SamplingParams& params, int vocab_size);

}  // namespace quire
