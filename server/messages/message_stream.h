#pragma once
// One choice as Anthropic streams a message: a row of blocks, each with a start, deltas and a stop.

#include <string_view>
#include <vector>

#include "server/generation/chat_sinks.h"

namespace quire {

class MessageStream : public EventSink {
 public:
  MessageStream(Exchange& exchange, const std::vector<Choice>& choices, ChatReplyOptions options,
                const TextDefaults& defaults);
  awaitable<bool> on_delta(Choice& choice, ChoiceDelta delta) override;

 protected:
  void write_error(const Error& error) override;
  awaitable<void> write_end() override;

 private:
  enum class Block { none, thinking, text, tool_use };

  void write_start();
  void write_text(Block block, std::string_view text);
  void write_call(const ToolCallDelta& call);
  void open(Block block, const ToolCallDelta* call = nullptr);
  void close();
  void write_stop(const ChoiceDelta& delta);

  const std::vector<Choice>& choices_;
  ChatReplyOptions options_;
  const TextDefaults& defaults_;
  Block block_ = Block::none;
  int index_ = 0;  // of the open block, or of the next one
};

}  // namespace quire
