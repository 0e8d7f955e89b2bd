#pragma once
// Splits <think>…</think> from what follows, at any cut of the text.

#include <string>
#include <string_view>

namespace quire {

class ReasoningParser {
 public:
  // starts_inside: the prompt has opened <think> already; otherwise only text that begins with
  // <think> is reasoning.
  explicit ReasoningParser(bool starts_inside) : starts_inside_(starts_inside) {}

  struct Delta {
    std::string reasoning;
    std::string content;
  };
  Delta push(std::string_view text);
  Delta finish();

 private:
  enum class State : unsigned char { before, opened, inside, closed, content };

  // One state's part of the work; false where more text is needed.
  bool advance(Delta& delta);
  bool look_for_opening();
  bool read_reasoning(Delta& delta);
  bool skip_space(State next);

  bool starts_inside_;
  State state_ = State::before;
  std::string pending_;
};

}  // namespace quire
