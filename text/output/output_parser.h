#pragma once
// Splits what a model says into reasoning, content and tool calls, while it is still being said.
// One object per choice of a request; not thread-safe.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// As OpenAI streams it: id and name come once, with the call's first delta; the arguments of all
// deltas of one index concatenate to the JSON text that the model wrote.
struct ToolCallDelta {
  int index = 0;
  std::optional<std::string> id;
  std::optional<std::string> name;
  std::string arguments;
};

struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;
  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

struct OutputParserOptions {
  bool reasoning = false;     // text up to </think> is reasoning
  bool starts_inside = true;  // the prompt opened <think>; otherwise the answer has to
  bool tools = false;         // look for Hermes tool calls
  // Calls come when they are complete, and a broken one is content as a whole: for answers that are
  // not streamed. Otherwise arguments come as they are written, and of a call that breaks off after
  // they began, what follows is content.
  bool whole_calls = false;
};

class OutputParser {
 public:
  explicit OutputParser(OutputParserOptions options);
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;
  ~OutputParser();

  // Any cut of the text gives the same in sum. White space next to markers is dropped: after
  // <think>, before and after </think>, and around calls at either end of the content.
  OutputDelta push(std::string_view text);
  // What was held back: an unfinished marker or call is content, never lost.
  OutputDelta finish();

  int num_tool_calls() const;  // so far; the finish reason is tool_calls where it is not 0

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
