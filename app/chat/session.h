#pragma once
// One conversation with one server: asks, shows the answer while it comes, and does what /commands
// say.

#include <functional>
#include <string>
#include <string_view>

#include "app/chat/conversation.h"
#include "app/chat/terminal.h"
#include "net/http_client.h"

namespace quire {

struct ChatServerAddress {
  net::Url base;  // what stands before /chat/completions
  std::string api_key;
};

class ChatSession {
 public:
  ChatSession(ChatServerAddress server, ChatTerminal& terminal);

  Conversation& conversation() { return conversation_; }
  // The models that the server lists; throws Failure.
  std::vector<std::string> models();

  // Adds the question and asks. False: there was no whole answer, and people were told why; what
  // came is kept, and a question without any answer is taken back.
  bool ask(const std::string& question);
  // A line that begins with a slash. False: the conversation is over.
  bool command(std::string_view line);
  bool show_reasoning = true;

 private:
  struct Command;
  static const std::vector<Command>& commands();

  bool answer();
  bool set(const std::string& rest);
  bool show_model(const std::string& name);
  void print_help();
  void print_history();
  net::Headers headers() const;

  ChatServerAddress server_;
  ChatTerminal& terminal_;
  net::Client client_;
  Conversation conversation_;
};

}  // namespace quire
