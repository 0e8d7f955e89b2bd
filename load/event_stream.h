#pragma once
// Server-sent events as an OpenAI server sends them, read from pieces of any size.

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace quire::load {

class EventStream {
 public:
  EventStream();
  ~EventStream();
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // Returns how many events with text (content, reasoning, tool calls) ended in this piece.
  int push(std::string_view piece);

  bool done() const { return done_; }  // [DONE] was seen
  const std::string& error() const {
    return error_;
  }  // message of an error event, or of an event that is no JSON
  const std::string& finish_reason() const { return finish_reason_; }
  int prompt_tokens() const { return prompt_tokens_; }
  int output_tokens() const { return output_tokens_; }
  // The answer's content so far, of the first choice; without reasoning and tool calls. Once.
  std::string take_text() { return std::move(text_); }

 private:
  struct Parser;
  bool event(std::string_view data);  // does it carry text?

  std::unique_ptr<Parser> parser_;
  std::string line_;
  std::string error_;
  std::string finish_reason_;
  std::string text_;
  int prompt_tokens_ = 0;
  int output_tokens_ = 0;
  bool done_ = false;
};

}  // namespace quire::load
