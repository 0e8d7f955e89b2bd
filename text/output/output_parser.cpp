#include "text/output/output_parser.h"

#include <utility>

#include "text/output/reasoning_parser.h"
#include "text/output/tool_parser.h"

namespace quire {

struct OutputParser::State {
  explicit State(const OutputParserOptions& options) {
    if (options.reasoning) reasoning.emplace(options.starts_inside);
    if (options.tools) tools.emplace(options.whole_calls);
  }

  void add_content(OutputDelta& delta, std::string&& content) {
    if (tools) {
      tools->push(content, delta);
    } else {
      delta.content += content;
    }
  }

  std::optional<ReasoningParser> reasoning;
  std::optional<ToolParser> tools;
};

OutputParser::OutputParser(OutputParserOptions options)
    : state_(std::make_unique<State>(options)) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

OutputDelta OutputParser::push(std::string_view text) {
  OutputDelta delta;
  if (!state_->reasoning) {
    state_->add_content(delta, std::string(text));
    return delta;
  }
  ReasoningParser::Delta split = state_->reasoning->push(text);
  delta.reasoning = std::move(split.reasoning);
  state_->add_content(delta, std::move(split.content));
  return delta;
}

OutputDelta OutputParser::finish() {
  OutputDelta delta;
  if (state_->reasoning) {
    ReasoningParser::Delta split = state_->reasoning->finish();
    delta.reasoning = std::move(split.reasoning);
    state_->add_content(delta, std::move(split.content));
  }
  if (state_->tools) state_->tools->finish(delta);
  return delta;
}

int OutputParser::num_tool_calls() const { return state_->tools ? state_->tools->num_calls() : 0; }

}  // namespace quire
