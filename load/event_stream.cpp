#include "load/event_stream.h"

#include <simdjson.h>

namespace quire::load {

namespace dom = simdjson::dom;

struct EventStream::Parser {
  dom::parser json;
};

EventStream::EventStream() : parser_(std::make_unique<Parser>()) {}
EventStream::~EventStream() = default;

int EventStream::push(std::string_view piece) {
  int with_text = 0;
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    line_ += piece.substr(0, end);
    if (end == std::string_view::npos) break;
    piece.remove_prefix(end + 1);
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      with_text += event(line) ? 1 : 0;
    }
    line_.clear();
  }
  return with_text;
}

bool EventStream::event(std::string_view data) {
  if (data == "[DONE]") {
    done_ = true;
    return false;
  }
  dom::object root;
  if (parser_->json.parse(data.data(), data.size()).get(root) != simdjson::SUCCESS) {
    error_ = "an event is not a JSON object";
    return false;
  }
  std::string_view text;
  if (dom::object failure; root["error"].get(failure) == simdjson::SUCCESS) {
    error_ = failure["message"].get(text) == simdjson::SUCCESS ? std::string(text) : "error event";
    return false;
  }
  if (dom::object usage; root["usage"].get(usage) == simdjson::SUCCESS) {
    std::int64_t count = 0;
    if (usage["prompt_tokens"].get(count) == simdjson::SUCCESS)
      prompt_tokens_ = static_cast<int>(count);
    if (usage["completion_tokens"].get(count) == simdjson::SUCCESS)
      output_tokens_ = static_cast<int>(count);
  }
  bool has_text = false;
  dom::array choices;
  if (root["choices"].get(choices) != simdjson::SUCCESS) return false;
  for (dom::element choice : choices) {
    std::int64_t index = 0;
    const bool is_first = choice["index"].get(index) != simdjson::SUCCESS || index == 0;
    const auto take = [&](dom::element from, const char* field, bool is_answer) {
      if (from[field].get(text) != simdjson::SUCCESS || text.empty()) return;
      has_text = true;
      if (is_answer && is_first) text_ += text;
    };
    if (choice["finish_reason"].get(text) == simdjson::SUCCESS) finish_reason_ = text;
    take(choice, "text", true);
    dom::element delta;
    if (choice["delta"].get(delta) != simdjson::SUCCESS || !delta.is_object()) continue;
    take(delta, "content", true);
    take(delta, "reasoning", false);
    take(delta, "reasoning_content", false);
    dom::array calls;
    if (delta["tool_calls"].get(calls) == simdjson::SUCCESS && calls.size() != 0) has_text = true;
  }
  return has_text;
}

}  // namespace quire::load
