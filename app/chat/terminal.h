#pragma once
// The person's side of quire chat: lines in, text out. What a model writes cannot steer the
// terminal: of control characters only line ends and tabs get through.

#include <optional>
#include <string>
#include <string_view>

namespace quire {

// Leaves out what terminals take as commands. A character may come in several pieces; `held` keeps
// its beginning.
std::string harmless(std::string_view text, std::string& held);

class ChatTerminal {
 public:
  ChatTerminal();

  bool is_interactive() const { return interactive_; }  // a person types

  // The next message, which may have several lines: one that ends in \ goes on, and """ begins and
  // ends a block. Unset: the end of the input, or Ctrl-C on an empty line twice.
  std::optional<std::string> read_message();

  void reasoning(std::string_view text);
  void content(std::string_view text);
  void end_answer();
  void call(std::string_view name, std::string_view arguments);  // of a tool
  void print(std::string_view text);  // what a command has to say
  void note(std::string_view text);   // for people; not where the output is a pipe
  void error(std::string_view text);  // always, to stderr

  // Ctrl-C was pressed since interrupted() was last called, which forgets it.
  static bool is_interrupted();
  static bool interrupted();

 private:
  enum class Showing : unsigned char { nothing, reasoning, content };

  std::optional<std::string> read_line(std::string_view prompt);
  void show(Showing what, std::string_view text);
  void style(const char* code);

  bool interactive_;
  bool styled_;
  std::string input_;
  std::string held_;
  Showing showing_ = Showing::nothing;
  bool at_line_start_ = true;
};

}  // namespace quire
