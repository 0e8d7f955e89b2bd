#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "server/generation/completion_sinks.h"

namespace quire {

CompletionCollector::CompletionCollector(const std::vector<Choice>& choices,
                                         CompletionReplyOptions options)
    : options_(std::move(options)), choices_(choices.size()) {
  for (const Choice& choice : choices) {
    openapi::CompletionChoice& into = choices_[choice.index];
    into.index = choice.index;
    if (!options_.echo.empty()) into.text = options_.echo[choice.prompt];
    if (options_.logprobs) {
      into.logprobs.emplace();
      if (!options_.echo.empty()) {
        into.logprobs->starts_prompt = true;
        into.logprobs->tokens.push_back(options_.first_tokens[choice.prompt]);
      }
    }
    if (options_.return_token_ids) {
      into.token_ids.emplace();
      into.prompt_token_ids = options_.prompt_ids[choice.prompt];
    }
  }
}

awaitable<bool> CompletionCollector::on_delta(Choice& choice, ChoiceDelta delta) {
  openapi::CompletionChoice& into = choices_[choice.index];
  into.text += delta.text.content;
  if (into.logprobs) {
    auto& tokens = into.logprobs->tokens;
    std::ranges::move(delta.prompt_logprobs, std::back_inserter(tokens));
    std::ranges::move(delta.logprobs, std::back_inserter(tokens));
  }
  if (into.token_ids) {
    into.token_ids->insert(into.token_ids->end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  into.finish_reason = std::move(delta.finish_reason);
  into.stop_reason = std::move(delta.stop_reason);
  co_return true;
}

awaitable<bool> CompletionCollector::on_error(Choice&, const Error& error) {
  error_ = error;
  co_return false;
}

openapi::CompletionResponse CompletionCollector::take(openapi::Usage usage) {
  openapi::CompletionResponse response;
  response.id = std::move(options_.id);
  response.created = options_.created;
  response.model = std::move(options_.model);
  response.choices = std::move(choices_);
  response.usage = std::move(usage);
  return response;
}

}  // namespace quire
