#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "server/generation/completion_sinks.h"

namespace quire {

namespace {

// With the `count` most probable ones of each: echo and prompt_logprobs may want different numbers.
void append_best(std::vector<openapi::TokenLogprob>& into,
                 const std::vector<openapi::TokenLogprob>& tokens, std::int64_t count) {
  for (const auto& token : tokens) {
    auto& top = into.emplace_back(token).top;
    top.resize(std::min(top.size(), static_cast<std::size_t>(count)));
  }
}

}  // namespace

CompletionCollector::CompletionCollector(const std::vector<Choice>& choices,
                                         CompletionReplyOptions options)
    : options_(std::move(options)), choices_(choices.size()) {
  for (const Choice& choice : choices) choices_[choice.index] = begun(choice);
}

openapi::CompletionChoice CompletionCollector::begun(const Choice& choice) const {
  openapi::CompletionChoice into;
  into.index = choice.index;
  if (!options_.echo.empty()) into.text = options_.echo[choice.prompt];
  if (options_.logprobs) {
    into.logprobs.emplace();
    if (!options_.echo.empty()) {
      into.logprobs->starts_prompt = true;
      into.logprobs->tokens.push_back(options_.first_tokens[choice.prompt]);
    }
  }
  if (options_.prompt_logprobs) into.prompt_logprobs.emplace();
  if (options_.return_token_ids) {
    into.token_ids.emplace();
    into.prompt_token_ids = options_.prompt_ids[choice.prompt];
  }
  return into;
}

void CompletionCollector::forget(const Choice& choice) {
  choices_[choice.index] = begun(choice);
}

awaitable<bool> CompletionCollector::on_delta(Choice& choice, ChoiceDelta delta) {
  openapi::CompletionChoice& into = choices_[choice.index];
  into.text += delta.text.content;
  if (into.prompt_logprobs) {
    append_best(*into.prompt_logprobs, delta.prompt_logprobs, *options_.prompt_logprobs);
  }
  if (into.logprobs) {
    auto& tokens = into.logprobs->tokens;
    if (!options_.echo.empty()) {
      append_best(tokens, delta.prompt_logprobs, options_.num_logprobs);
    }
    std::ranges::move(delta.logprobs, std::back_inserter(tokens));
  }
  if (into.token_ids) {
    into.token_ids->insert(into.token_ids->end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  if (!delta.transfer_params.empty()) transfer_params_ = std::move(delta.transfer_params);
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
  response.system_fingerprint = std::move(options_.fingerprint);
  response.usage = std::move(usage);
  response.kv_transfer_params = std::move(transfer_params_);
  return response;
}

}  // namespace quire
