#pragma once
// Splits what a model says into reasoning, content and tool calls, while it is still being said:
// one automaton for all dialects, with constant work for each byte (times the length of a marker).
// One object per choice of a request; not thread-safe.

#include <cstdint>
#include <memory>
#include <string_view>

#include "text/output/dialect.h"
#include "text/output/output_delta.h"
#include "text/output/tool_types.h"

namespace quire {

struct OutputFormat {
  const Dialect* dialect = nullptr;            // null: no tool calls are known
  bool calls = true;                           // look for the dialect's calls
  const ReasoningFormat* reasoning = nullptr;  // null: no reasoning is looked for
  bool starts_inside = false;                  // the prompt has opened the reasoning
  bool may_think = true;                       // else the model may, as the answer's beginning
  std::shared_ptr<const ToolTypes> types{};    // of the request's tools
  bool only_calls = false;  // a call is demanded: markup that breaks off is no text
};

class OutputParser {
 public:
  explicit OutputParser(OutputFormat format);
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;
  ~OutputParser();

  // Any cut of the text gives the same in sum. White space at the ends of reasoning, and of content
  // next to markup, is dropped. Special tokens come as their text.
  OutputDelta push(std::string_view text);
  // The end. Of a call that breaks off nothing more is given once its name has been; what was held
  // back otherwise (an unfinished marker or call) is content. Where only calls are said it is
  // a call without arguments as soon as its name is known, and else nothing.
  OutputDelta finish();

  int num_tool_calls() const;  // so far; the finish reason is tool_calls where it is not 0
  bool in_reasoning() const;   // what comes next is thought, as far as is known
  std::uint64_t work() const;  // bytes looked at so far, each as often as it was

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
