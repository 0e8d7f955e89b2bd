#include <boost/asio/awaitable.hpp>
#include <utility>

#include "server/generation/chat_sinks.h"

namespace quire {

namespace {

void append_call(std::vector<openapi::ToolCall>& calls, ToolCallDelta&& delta) {
  const auto index = static_cast<std::size_t>(delta.index);
  if (calls.size() <= index) calls.resize(index + 1);
  openapi::ToolCall& call = calls[index];
  if (delta.id) call.id = std::move(*delta.id);
  if (delta.name) call.function.name = std::move(*delta.name);
  call.function.arguments += delta.arguments;
}

}  // namespace

ChatCollector::ChatCollector(std::size_t num_choices, ChatReplyOptions options)
    : options_(std::move(options)), choices_(num_choices) {
  if (options_.prompt_logprobs) prompt_logprobs_.emplace();
  for (std::size_t i = 0; i < num_choices; ++i) choices_[i] = begun(static_cast<int>(i));
}

openapi::ChatChoice ChatCollector::begun(int index) const {
  openapi::ChatChoice choice;
  choice.index = index;
  choice.content = options_.echo;
  if (options_.return_token_ids) choice.token_ids.emplace();
  if (options_.logprobs) choice.logprobs.emplace();
  return choice;
}

void ChatCollector::forget(const Choice& choice) { choices_[choice.index] = begun(choice.index); }

awaitable<bool> ChatCollector::on_delta(Choice& choice, ChoiceDelta delta) {
  openapi::ChatChoice& into = choices_[choice.index];
  // Of the one prompt; every choice brings them.
  if (prompt_logprobs_ && prompt_logprobs_->empty()) {
    *prompt_logprobs_ = std::move(delta.prompt_logprobs);
  }
  *into.content += delta.text.content;
  if (!delta.text.reasoning.empty() && options_.include_reasoning) {
    if (!into.reasoning) into.reasoning.emplace();
    *into.reasoning += delta.text.reasoning;
  }
  for (auto& call : delta.text.tool_calls) append_call(into.tool_calls, std::move(call));
  if (into.token_ids) {
    into.token_ids->insert(into.token_ids->end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  if (into.logprobs) {
    std::move(delta.logprobs.begin(), delta.logprobs.end(), std::back_inserter(*into.logprobs));
  }
  if (!delta.transfer_params.empty()) transfer_params_ = std::move(delta.transfer_params);
  into.finish_reason = options_.finish_reason(std::move(delta.finish_reason));
  into.stop_reason = std::move(delta.stop_reason);
  co_return true;
}

awaitable<bool> ChatCollector::on_error(Choice&, const Error& error) {
  error_ = error;
  co_return false;
}

openapi::ChatCompletionResponse ChatCollector::take(openapi::Usage usage) {
  openapi::ChatCompletionResponse response;
  response.id = std::move(options_.id);
  response.created = options_.created;
  response.model = std::move(options_.model);
  response.system_fingerprint = std::move(options_.fingerprint);
  response.usage = std::move(usage);
  response.prompt_logprobs = std::move(prompt_logprobs_);
  response.kv_transfer_params = std::move(transfer_params_);
  // As OpenAI has it: a message that only calls tools has no content.
  for (openapi::ChatChoice& choice : choices_) {
    if (choice.content->empty() && !choice.tool_calls.empty()) choice.content.reset();
  }
  response.choices = std::move(choices_);
  if (options_.return_token_ids) response.prompt_token_ids = std::move(options_.prompt_ids);
  return response;
}

}  // namespace quire
