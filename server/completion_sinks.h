#pragma once
// Where the choices of a text completion go: into a stream of chunks, or into one response.

#include <optional>
#include <string>
#include <vector>

#include "server/choices.h"
#include "server/chunk_writer.h"
#include "server/sse.h"

namespace quire {

struct CompletionReplyOptions {
  std::string id{};
  std::int64_t created = 0;
  std::string model{};
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool logprobs = false;
  std::vector<std::string> echo{};  // by prompt: its text; empty: none
  // By prompt, with echo and logprobs: its first token, which has no log-probability.
  std::vector<openapi::TokenLogprob> first_tokens{};
  std::vector<std::vector<TokenId>> prompt_ids{};  // by prompt, when return_token_ids
};

class CompletionStream : public ChoiceSink {
 public:
  CompletionStream(Exchange& exchange, const std::vector<Choice>& choices,
                   CompletionReplyOptions options, const TextDefaults& defaults);

  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;
  awaitable<bool> on_error(Choice& choice, const Error& error) override;
  awaitable<void> finish();

 private:
  SseWriter& sse();
  openapi::CompletionLogprobs logprobs_of(const Choice& choice, const ChoiceDelta& delta,
                                          bool first) const;
  void write(const Choice& choice, const ChoiceDelta& delta, std::string_view text, bool first);

  Exchange& exchange_;
  const std::vector<Choice>& choices_;
  CompletionReplyOptions options_;
  const TextDefaults& defaults_;
  ChunkWriter chunks_;
  SseWriter* sse_ = nullptr;
  struct Progress {
    bool has_begun = false;
    std::int64_t characters = 0;  // sent so far
  };
  std::vector<Progress> progress_;  // by choice
};

class CompletionCollector : public ChoiceSink {
 public:
  CompletionCollector(const std::vector<Choice>& choices, CompletionReplyOptions options);

  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;
  awaitable<bool> on_error(Choice& choice, const Error& error) override;
  const std::optional<Error>& error() const { return error_; }
  openapi::CompletionResponse take(openapi::Usage usage);

 private:
  CompletionReplyOptions options_;
  std::vector<openapi::CompletionChoice> choices_;
  std::optional<Error> error_;
};

}  // namespace quire
