#pragma once
// Choices as vLLM's /inference/v1/generate streams them: token ids, no text.

#include <optional>
#include <string>
#include <vector>

#include "server/generation/stream_sink.h"

namespace quire {

class TokenStream : public EventSink {
 public:
  TokenStream(Exchange& exchange, const std::vector<Choice>& choices, ReplyOptions options,
              const TextDefaults& defaults)
      : EventSink(exchange), choices_(choices), options_(std::move(options)), defaults_(defaults) {}
  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;

 protected:
  void write_error(const Error& error) override;
  awaitable<void> write_end() override;

 private:
  const std::vector<Choice>& choices_;
  ReplyOptions options_;
  const TextDefaults& defaults_;
};

}  // namespace quire
