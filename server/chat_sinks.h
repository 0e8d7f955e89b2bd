#pragma once
// Where the choices of a chat completion go: into a stream of chunks, or into one response.

#include <functional>
#include <string>
#include <vector>

#include "server/choices.h"
#include "server/chunk_writer.h"
#include "server/sse.h"

namespace quire {

// What the replies of one chat request depend on.
struct ChatReplyOptions {
  std::string id{};
  std::int64_t created = 0;
  std::string model{};
  bool include_usage = false;
  bool continuous_usage = false;
  bool include_reasoning = true;
  bool return_token_ids = false;
  bool logprobs = false;
  std::vector<TokenId> prompt_ids{};  // when return_token_ids
};

class ChatStream : public ChoiceSink {
 public:
  // The stream begins with the first output, so that what fails before can still have a status.
  ChatStream(Exchange& exchange, const std::vector<Choice>& choices, ChatReplyOptions options,
             const TextDefaults& defaults);

  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;
  awaitable<bool> on_error(Choice& choice, const Error& error) override;
  // After the last choice: usage and [DONE].
  awaitable<void> finish();

 private:
  SseWriter& sse();
  void write_role(const Choice& choice);
  void write_delta(const Choice& choice, const ChoiceDelta& delta);
  void end_chunk(const Choice& choice, std::string& out);

  Exchange& exchange_;
  const std::vector<Choice>& choices_;
  ChatReplyOptions options_;
  const TextDefaults& defaults_;
  ChunkWriter chunks_;
  SseWriter* sse_ = nullptr;
  std::vector<bool> has_begun_;  // by choice
};

class ChatCollector : public ChoiceSink {
 public:
  ChatCollector(std::size_t num_choices, ChatReplyOptions options);

  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;
  awaitable<bool> on_error(Choice& choice, const Error& error) override;
  const std::optional<Error>& error() const { return error_; }
  openapi::ChatCompletionResponse take(openapi::Usage usage);

 private:
  ChatReplyOptions options_;
  std::vector<openapi::ChatChoice> choices_;
  std::optional<Error> error_;
};

}  // namespace quire
