#pragma once
// Where the choices of a text completion go: into a stream of chunks, or into one response.

#include <optional>
#include <string>
#include <vector>

#include "server/generation/stream_sink.h"

namespace quire {

struct CompletionReplyOptions : ReplyOptions {
  std::int64_t num_logprobs = 0;    // beside the token's own; of the prompt more may come
  std::vector<std::string> echo{};  // by prompt: its text; empty: none
  // By prompt, with echo and logprobs: its first token, which has no log-probability.
  std::vector<openapi::TokenLogprob> first_tokens{};
  std::vector<std::vector<TokenId>> prompt_ids{};  // by prompt, when return_token_ids
};

class CompletionStream : public StreamSink {
 public:
  CompletionStream(Exchange& exchange, const std::vector<Choice>& choices,
                   CompletionReplyOptions options, const TextDefaults& defaults);
  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;

 private:
  openapi::CompletionLogprobs next_logprobs(const Choice& choice, const ChoiceDelta& delta,
                                            bool first);
  void write(const Choice& choice, const ChoiceDelta& delta, std::string_view text, bool first);

  CompletionReplyOptions options_;
  struct Progress {
    bool has_begun = false;
    std::int64_t offset = 0;  // of the next token
  };
  std::vector<Progress> progress_;  // by choice
};

class CompletionCollector : public ChoiceSink {
 public:
  CompletionCollector(const std::vector<Choice>& choices, CompletionReplyOptions options);

  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;
  awaitable<bool> on_error(Choice& choice, const Error& error) override;
  bool can_forget() const override { return true; }
  void forget(const Choice& choice) override;
  const std::optional<Error>& error() const { return error_; }
  openapi::CompletionResponse take(openapi::Usage usage);

 private:
  openapi::CompletionChoice begun(const Choice& choice) const;

  CompletionReplyOptions options_;
  std::vector<openapi::CompletionChoice> choices_;
  std::string transfer_params_;  // as ChoiceDelta's
  std::optional<Error> error_;
};

}  // namespace quire
