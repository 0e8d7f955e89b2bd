#pragma once
// Finds Hermes tool calls, <tool_call>{"name": …, "arguments": {…}}</tool_call>, in a text that
// arrives in pieces.

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "text/output/output_parser.h"
#include "text/output/tool_call_scanner.h"

namespace quire {

class ToolParser {
 public:
  explicit ToolParser(bool whole_calls) : whole_calls_(whole_calls) {}

  void push(std::string_view text, OutputDelta& delta);
  void finish(OutputDelta& delta);
  int num_calls() const { return num_calls_; }

 private:
  enum class State : std::uint8_t { content, call, closing };

  // One state's part of the work; false where more text is needed.
  bool read_content(OutputDelta& delta);
  bool read_call(OutputDelta& delta);
  bool read_closing();
  void add_content(OutputDelta& delta, std::string_view text);
  void begin_call();
  void give_name(OutputDelta& delta, std::string name);
  void give_arguments(OutputDelta& delta, std::string_view all);
  void give_progress(OutputDelta& delta);
  void give_back(OutputDelta& delta);
  void complete_call(OutputDelta& delta);
  std::string new_id();

  bool whole_calls_;
  State state_ = State::content;
  std::string pending_;
  std::string space_;  // white space that is content only if more content follows
  bool has_content_ = false;
  int num_calls_ = 0;

  ToolCallScanner scanner_;
  bool started_ = false;         // the running call's name has been given
  std::size_t given_bytes_ = 0;  // of its arguments
  std::optional<std::mt19937_64> random_;
};

}  // namespace quire
