#include "engine/request/request.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace quire {

Request::Request(RequestInit init)
    : state(init.needs_grammar ? RequestState::waiting_for_grammar : RequestState::waiting),
      id_(init.id),
      sampling_(std::move(init.sampling)),
      eos_token_ids_(std::move(init.eos_token_ids)),
      priority_(init.priority),
      arrival_(init.arrival),
      cache_salt_(std::move(init.cache_salt)),
      lora_name_(std::move(init.lora_name)),
      lora_id_(init.lora_id),
      transfer_params_(std::move(init.transfer_params)),
      items_(std::move(init.items)),
      tokens_(std::move(init.prompt)),
      num_prompt_(static_cast<int>(tokens_.size())) {
  assert(num_prompt_ > 0);
}

bool Request::ended_by_token() const {
  if (num_output() == 0 || num_output() < sampling_.min_tokens) return false;
  const TokenId last = tokens_.back();
  const auto holds = [last](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), last) != ids.end();
  };
  return (!sampling_.ignore_eos && holds(eos_token_ids_)) || holds(sampling_.stop_token_ids);
}

std::optional<FinishReason> Request::stop_check(int max_model_len) const {
  if (ended_by_token()) return FinishReason::stop;
  if (num_tokens() >= max_model_len) return FinishReason::length;
  if (num_output() >= std::max(sampling_.max_tokens, sampling_.min_tokens)) {
    return FinishReason::length;
  }
  return std::nullopt;
}

}  // namespace quire
