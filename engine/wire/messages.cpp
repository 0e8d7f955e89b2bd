#include "engine/wire/messages.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

namespace quire {
namespace {

template <class T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// Tokens become outputs, so that one list keeps the order of steps.
void spell_out(StepOutput& step) {
  for (const auto& [id, token] : step.tokens) {
    RequestOutput& output = step.requests.emplace_back();
    output.id = id;
    output.token_ids = {token};
    output.times.last_token = step.time;
  }
  step.tokens.clear();
}

}  // namespace

// What only some outputs carry is kept where the later one has nothing to say.
void merge(RequestOutput& into, RequestOutput&& next) {
  append(into.token_ids, std::move(next.token_ids));
  append(into.logprobs, std::move(next.logprobs));
  append(into.prompt_logprobs, std::move(next.prompt_logprobs));
  if (next.finish_reason) {
    into.finish_reason = next.finish_reason;
    into.stop_token = next.stop_token;
    into.error = std::move(next.error);
  }
  into.num_cached_tokens = std::max(into.num_cached_tokens, next.num_cached_tokens);
  into.num_external_tokens = std::max(into.num_external_tokens, next.num_external_tokens);
  into.num_preemptions = std::max(into.num_preemptions, next.num_preemptions);
  const RequestTimes& times = next.times;
  if (times.queued != Clock::time_point()) into.times = times;
  if (times.last_token != Clock::time_point()) into.times.last_token = times.last_token;
  if (!next.transfer_params.empty()) into.transfer_params = std::move(next.transfer_params);
  if (!next.pooled.empty()) into.pooled = std::move(next.pooled);
}

// Each request then occurs once, however many steps are merged.
void merge(StepOutput& into, StepOutput&& next) {
  spell_out(into);
  spell_out(next);
  std::unordered_map<RequestId, std::size_t> place_of;
  for (std::size_t i = 0; i < into.requests.size(); ++i) place_of[into.requests[i].id] = i;
  for (RequestOutput& output : next.requests) {
    const auto [place, is_new] = place_of.try_emplace(output.id, into.requests.size());
    if (is_new) {
      into.requests.push_back(std::move(output));
    } else {
      merge(into.requests[place->second], std::move(output));
    }
  }
  append(into.decisions, std::move(next.decisions));
  constexpr std::size_t kMostDecisions = 4096;  // of a front end that does not read
  if (into.decisions.size() > kMostDecisions) {
    into.decisions.erase(into.decisions.begin(),
                         into.decisions.end() - static_cast<std::ptrdiff_t>(kMostDecisions));
  }
  into.time = next.time;
  const int step_tokens = into.stats.step_tokens + next.stats.step_tokens;
  const int step_requests = into.stats.step_requests + next.stats.step_requests;
  into.stats = next.stats;
  into.stats.step_tokens = step_tokens;
  into.stats.step_requests = step_requests;
}

std::string_view quire_version() { return QUIRE_VERSION; }

}  // namespace quire
