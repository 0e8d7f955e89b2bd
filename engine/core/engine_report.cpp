// EngineCore: what a step brought, as messages to the front end.

#include <algorithm>
#include <utility>

#include "engine/core/engine_core.h"

namespace quire {

void EngineCore::report(const RequestProgress& progress, const StepResult& result,
                        StepOutput& output) {
  const Request& request = *progress.request;
  const auto tokens = result.tokens_of(progress);
  const auto tracked = tracking_.find(request.id());
  if (tracked == tracking_.end()) return;
  const bool plain = tokens.size() == 1 && tracked->second.begun && !progress.finish_reason &&
                     !request.sampling().logprobs;
  if (plain) return output.tokens.push_back({request.id(), tokens[0]});

  RequestTimes& times = tracked->second.times;
  const bool has_vector = pooler_ != nullptr && progress.row >= 0;
  if (!tokens.empty() || has_vector) {
    if (!std::exchange(tracked->second.begun, true)) times.first_token = output.time;
    times.last_token = output.time;
  }
  RequestOutput& one = output.requests.emplace_back();
  one.id = request.id();
  one.token_ids.assign(tokens.begin(), tokens.end());
  one.finish_reason = progress.finish_reason;
  one.stop_token = progress.stop_token;
  one.num_cached_tokens = request.num_cached;
  one.num_external_tokens =
      std::min(request.num_cached, request.num_external + request.num_restored);
  one.num_preemptions = request.num_preemptions;
  one.times = times;
  if (progress.finish_reason) one.transfer_params = request.transfer_result;
  if (progress.finish_reason == FinishReason::error) {
    one.error = request.error;
  }
  if (has_vector) one.pooled = pooler_->finish(runner_->pooled(progress.row));
  if (request.sampling().logprobs) add_logprobs(progress, one);
  if (request.sampling().prompt_logprobs) add_prompt_logprobs(request, one);
  if (progress.finish_reason) forget(request.id());
}

void EngineCore::add_logprobs(const RequestProgress& progress, RequestOutput& output) const {
  if (progress.row < 0) return;
  const LogprobRows& rows = runner_->logprobs();
  const std::int32_t first = runner_->sample_of_row(progress.row);
  const int asked = *progress.request->sampling().logprobs;
  const auto count = static_cast<std::size_t>(asked < 0 ? rows.k : std::min(asked, rows.k));
  for (std::size_t token = 0; token < output.token_ids.size(); ++token) {
    const auto row = static_cast<std::size_t>(rows.row_of[static_cast<std::size_t>(first) + token]);
    PositionLogprobs& position = output.logprobs.emplace_back();
    position.chosen = {output.token_ids[token], rows.chosen_values[row]};
    position.rank = rows.ranks[row];
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = row * static_cast<std::size_t>(rows.k) + i;
      position.top.push_back({rows.top_ids[at], rows.top_values[at]});
    }
  }
}

void EngineCore::add_prompt_logprobs(const Request& request, RequestOutput& output) const {
  const auto positions = runner_->take_prompt_logprobs(request.id());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    PositionLogprobs& position = output.prompt_logprobs.emplace_back();
    position.chosen = {request.prompt()[i + 1], positions[i].chosen};
    position.rank = positions[i].rank;
    for (std::size_t j = 0; j < positions[i].top_ids.size(); ++j) {
      position.top.push_back({positions[i].top_ids[j], positions[i].top_values[j]});
    }
  }
}

}  // namespace quire
