#pragma once
// Where the choices of a chat completion go: into a stream of chunks, or into one response.

#include <functional>
#include <string>
#include <vector>

#include "server/generation/stream_sink.h"

namespace quire {

// What the replies of one chat request depend on.
struct ChatReplyOptions : ReplyOptions {
  bool include_reasoning = true;
  std::vector<TokenId> prompt_ids{};  // when return_token_ids
  std::string echo{};  // the message that the answer goes on with, when it is to be repeated
  bool names_tool = false;  // tool_choice is a function: its call ends with "stop", as OpenAI's

  std::string finish_reason(std::string reason) const {
    return names_tool && reason == "tool_calls" ? "stop" : reason;
  }
};

class ChatStream : public StreamSink {
 public:
  ChatStream(Exchange& exchange, const std::vector<Choice>& choices, ChatReplyOptions options,
             const TextDefaults& defaults);
  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;

 private:
  void write_role(const Choice& choice);
  void write_echo(const Choice& choice);
  void write_delta(const Choice& choice, const ChoiceDelta& delta);

  ChatReplyOptions options_;
  std::vector<bool> has_begun_;  // by choice
};

class ChatCollector : public ChoiceSink {
 public:
  ChatCollector(std::size_t num_choices, ChatReplyOptions options);

  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;
  awaitable<bool> on_error(Choice& choice, const Error& error) override;
  bool can_forget() const override { return true; }
  void forget(const Choice& choice) override;
  const std::optional<Error>& error() const { return error_; }
  openapi::ChatCompletionResponse take(openapi::Usage usage);

 private:
  openapi::ChatChoice begun(int index) const;

  ChatReplyOptions options_;
  std::vector<openapi::ChatChoice> choices_;
  std::optional<std::vector<openapi::TokenLogprob>> prompt_logprobs_;
  std::string transfer_params_;  // as ChoiceDelta's
  std::optional<Error> error_;
};

}  // namespace quire
