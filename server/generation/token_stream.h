#pragma once
// Choices as vLLM's /inference/v1/generate streams them: token ids, no text.

#include <optional>
#include <string>
#include <vector>

#include "server/generation/stream_sink.h"

namespace quire {

class TokenStream : public EventSink {
 public:
  // prompt: told with each choice's first event; empty: not.
  TokenStream(Exchange& exchange, const std::vector<Choice>& choices, ReplyOptions options,
              bool with_text, std::vector<TokenId> prompt, const TextDefaults& defaults)
      : EventSink(exchange),
        choices_(choices),
        options_(std::move(options)),
        with_text_(with_text),
        prompt_(std::move(prompt)),
        has_begun_(choices.size()),
        defaults_(defaults) {}
  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;

 protected:
  void write_error(const Error& error) override;
  awaitable<void> write_end() override;

 private:
  const std::vector<Choice>& choices_;
  ReplyOptions options_;
  bool with_text_;
  std::vector<TokenId> prompt_;
  std::vector<bool> has_begun_;  // by choice
  const TextDefaults& defaults_;
};

}  // namespace quire
