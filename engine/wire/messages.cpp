#include "engine/wire/messages.h"

#include <iterator>
#include <utility>

namespace quire {
namespace {

template <class T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void merge(RequestOutput& into, RequestOutput&& next) {
  append(into.token_ids, std::move(next.token_ids));
  append(into.logprobs, std::move(next.logprobs));
  into.finish_reason = next.finish_reason;
  into.stop_token = next.stop_token;
  into.num_cached_tokens = next.num_cached_tokens;
  into.num_preemptions = next.num_preemptions;
  into.times = next.times;
  into.transfer_params = std::move(next.transfer_params);
  into.error = std::move(next.error);
}

void merge(StepOutput& into, StepOutput&& next) {
  append(into.requests, std::move(next.requests));
  const int step_tokens = into.stats.step_tokens + next.stats.step_tokens;
  const int step_requests = into.stats.step_requests + next.stats.step_requests;
  into.stats = next.stats;
  into.stats.step_tokens = step_tokens;
  into.stats.step_requests = step_requests;
}

std::string_view quire_version() { return QUIRE_VERSION; }

}  // namespace quire
