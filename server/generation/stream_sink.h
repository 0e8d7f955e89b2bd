#pragma once
// What replies of a request's choices depend on, and what streams of chat and of text completions
// have in common.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/generation/choices.h"
#include "server/generation/chunk_writer.h"
#include "server/http/sse.h"

namespace quire {

struct ReplyOptions {
  std::string id{};
  std::int64_t created = 0;  // Unix time
  std::string model{};
  std::string fingerprint{};
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool logprobs = false;
  std::optional<std::int64_t> prompt_logprobs{};  // this many; a stream has none
};

// X-Request-Id, else as the body says, else made up.
std::string public_id(const openapi::GenerationRequest& request, const Exchange& exchange);

ReplyOptions reply_options(const openapi::GenerationRequest& request, std::string_view id_prefix,
                           bool logprobs, const Exchange& exchange, const AppState& app);

// Choices as server-sent events. The stream begins with the first output, so that what fails before
// can still have a status.
class EventSink : public ChoiceSink {
 public:
  explicit EventSink(Exchange& exchange) : exchange_(exchange) {}

  awaitable<bool> on_error(Choice& choice, const Error& error) override;
  // After the last choice: what the stream ends with, unless it was refused.
  awaitable<void> finish();

 protected:
  // The request had a reply with a status of its own before the stream began.
  bool refused() const { return refused_; }
  bool has_begun() const { return sse_ != nullptr; }
  Exchange& exchange() { return exchange_; }
  SseWriter& sse();
  virtual void write_error(const Error& error) = 0;
  virtual awaitable<void> write_end() = 0;

 private:
  Exchange& exchange_;
  SseWriter* sse_ = nullptr;
  bool refused_ = false;
  std::string told_;  // the latest error
};

// As OpenAI streams chunks.
class StreamSink : public EventSink {
 public:
  StreamSink(Exchange& exchange, const std::vector<Choice>& choices, const ReplyOptions& options,
             std::string_view object, const TextDefaults& defaults);

 protected:
  void write_error(const Error& error) override;
  awaitable<void> write_end() override;  // usage and [DONE]
  std::string& begin_chunk();
  // Appends the rest of a chunk to out, which ends with its choice: members of the chunk itself,
  // as `,"a":1`, and its usage up to num_tokens of the choice.
  void end_chunk(const Choice& choice, std::string& out, int num_tokens,
                 std::string_view members = {});
  // With what whoever continues the choice needs to know, if anything.
  void end_chunk(const Choice& choice, std::string& out, const ChoiceDelta& delta);
  void end_chunk(const Choice& choice, std::string& out) {
    end_chunk(choice, out, choice.text.num_tokens());
  }

 private:
  const std::vector<Choice>& choices_;
  bool include_usage_, continuous_usage_;
  const TextDefaults& defaults_;
  ChunkWriter chunks_;
};

// Until every choice has ended and the stream has its end, or the client has left.
awaitable<void> stream_choices(std::vector<Choice>& choices, EventSink& sink, Exchange& exchange);

}  // namespace quire
