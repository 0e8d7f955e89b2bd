#pragma once
// What a piece of a model's text adds to its reasoning, content and tool calls.

#include <optional>
#include <string>
#include <vector>

namespace quire {

// As OpenAI streams it: id and name come once, with the call's first delta; the arguments of all
// deltas of one index concatenate to JSON text.
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

}  // namespace quire
