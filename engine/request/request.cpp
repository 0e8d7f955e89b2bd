#include "engine/request/request.h"

#include <cassert>
#include <utility>

#include "engine/structured/mask_queue.h"

namespace quire {

Request::Request(RequestInit init)
    : state(init.sampling.constraint ? RequestState::waiting_for_grammar : RequestState::waiting),
      is_constrained(init.sampling.constraint.has_value()),
      num_prompt_(static_cast<int>(init.prompt.size())),
      max_output_(std::max(init.sampling.max_tokens, init.sampling.min_tokens)),
      // A constraint forbids an end that comes too early, or has no other way to go on.
      min_output_(init.sampling.constraint ? 0 : init.sampling.min_tokens),
      tokens_(std::move(init.prompt)),
      id_(init.id),
      sampling_(std::move(init.sampling)),
      eos_token_ids_(std::move(init.eos_token_ids)),
      priority_(init.priority),
      client_(init.client),
      arrival_(init.arrival),
      cache_salt_(std::move(init.cache_salt)),
      position_offset_(init.position_offset),
      lora_name_(std::move(init.lora_name)),
      lora_id_(init.lora_id),
      transfer_params_(std::move(init.transfer_params)),
      items_(std::move(init.items)) {
  assert(num_prompt_ > 0);
  const auto& stops = sampling_.stop_token_ids;
  const std::size_t num_eos = ignores_eos() ? 0 : eos_token_ids_.size();
  if (num_eos + stops.size() > ends_.size()) {
    num_ends_ = -1;
    return;
  }
  const auto end = std::copy_n(eos_token_ids_.begin(), num_eos, ends_.begin());
  num_ends_ = static_cast<std::int32_t>(std::copy(stops.begin(), stops.end(), end) - ends_.begin());
}

Request::~Request() = default;

bool Request::lacks_mask_slowly() const { return constraint != nullptr && !constraint->is_ready(); }

bool Request::ends_with_any() const {
  const auto holds = [last = tokens_.back()](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), last) != ids.end();
  };
  return (!ignores_eos() && holds(eos_token_ids_)) || holds(sampling_.stop_token_ids);
}

}  // namespace quire
