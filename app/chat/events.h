#pragma once
// What a server says in answer to a chat request: the events of a stream, or one JSON document from
// servers that do not stream. Bytes come in pieces of any size.

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct ToolCallText {
  std::string name;
  std::string arguments;
};

// What one piece added.
struct ChatDelta {
  std::string reasoning;
  std::string content;
};

class ChatEvents {
 public:
  // `is_stream`: the reply's type is text/event-stream.
  explicit ChatEvents(bool is_stream) : is_stream_(is_stream) {}

  ChatDelta push(std::string_view piece);
  ChatDelta finish();  // at the end of the body

  bool done() const { return done_; }                 // the answer came to its end
  const std::string& error() const { return error_; }  // an event that was an error, or no JSON
  const std::string& finish_reason() const { return finish_reason_; }
  std::optional<std::int64_t> completion_tokens() const { return completion_tokens_; }
  const std::map<int, ToolCallText>& tool_calls() const { return tool_calls_; }

 private:
  void line(std::string_view text, ChatDelta& delta);
  void document(std::string_view json, ChatDelta& delta);

  bool is_stream_;
  bool done_ = false;
  std::string line_;  // or the document so far
  std::string error_;
  std::string finish_reason_;
  std::optional<std::int64_t> completion_tokens_;
  std::map<int, ToolCallText> tool_calls_;
};

// The message of an error's body as OpenAI or others write it; the body itself, cut, where it is
// something else.
std::string error_message(std::string_view body);

}  // namespace quire
