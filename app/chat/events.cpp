#include "app/chat/events.h"

#include <algorithm>
#include <boost/json.hpp>

namespace quire {

namespace {

namespace json = boost::json;

constexpr std::size_t kMaxShown = 500;

const json::value* member(const json::value& value, std::string_view name) {
  const json::object* const object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}

std::string text_of(const json::value& value, std::string_view name) {
  const json::value* const found = member(value, name);
  const json::string* const text = found == nullptr ? nullptr : found->if_string();
  return text == nullptr ? std::string() : std::string(*text);
}

std::string text_or_message(const json::value& value) {
  if (const json::string* const text = value.if_string()) return std::string(*text);
  return text_of(value, "message");
}

void add_calls(const json::value& message, std::map<int, ToolCallText>& calls) {
  const json::value* const list = member(message, "tool_calls");
  if (list == nullptr || !list->is_array()) return;
  int place = 0;
  for (const json::value& call : list->get_array()) {
    const json::value* const index = member(call, "index");
    const int at = index != nullptr && index->is_int64() ? static_cast<int>(index->get_int64()) : place;
    ++place;
    const json::value* const function = member(call, "function");
    if (function == nullptr) continue;
    calls[at].name += text_of(*function, "name");
    calls[at].arguments += text_of(*function, "arguments");
  }
}

}  // namespace

std::string error_message(std::string_view body) {
  boost::system::error_code wrong;
  const json::value value = json::parse(body, wrong);
  if (!wrong) {
    std::string text = text_of(value, "message");
    if (const json::value* const error = member(value, "error"); error != nullptr && text.empty()) {
      text = text_or_message(*error);
    }
    if (text.empty()) text = text_of(value, "detail");
    if (!text.empty()) return text;
  }
  return std::string(body.substr(0, kMaxShown));
}

ChatDelta ChatEvents::push(std::string_view piece) {
  ChatDelta delta;
  line_ += piece;
  if (!is_stream_) return delta;
  std::size_t begin = 0;
  for (std::size_t end; (end = line_.find('\n', begin)) != line_.npos; begin = end + 1) {
    line(std::string_view(line_).substr(begin, end - begin), delta);
  }
  line_.erase(0, begin);
  return delta;
}

ChatDelta ChatEvents::finish() {
  ChatDelta delta;
  if (is_stream_) {
    if (!line_.empty()) line(line_, delta);
    if (!finish_reason_.empty()) done_ = true;  // not every server says [DONE]
  } else if (!line_.empty()) {
    document(line_, delta);
    done_ = true;
  }
  line_.clear();
  return delta;
}

void ChatEvents::line(std::string_view text, ChatDelta& delta) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  constexpr std::string_view kData = "data:";
  if (!text.starts_with(kData)) return;  // comments, event names, the empty line between events
  text.remove_prefix(kData.size());
  if (text.starts_with(' ')) text.remove_prefix(1);
  if (text == "[DONE]") {
    done_ = true;
  } else {
    document(text, delta);
  }
}

void ChatEvents::document(std::string_view text, ChatDelta& delta) {
  boost::system::error_code wrong;
  const json::value value = json::parse(text, wrong);
  if (wrong) {
    if (error_.empty()) error_ = "not JSON: " + std::string(text.substr(0, kMaxShown));
    return;
  }
  if (member(value, "error") != nullptr && !member(value, "error")->is_null()) {
    error_ = error_message(text);
    return;
  }
  if (const json::value* const usage = member(value, "usage")) {
    const json::value* const count = member(*usage, "completion_tokens");
    if (count != nullptr && count->is_int64()) completion_tokens_ = count->get_int64();
  }
  const json::value* const choices = member(value, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
  const json::value& choice = choices->get_array().front();
  if (std::string reason = text_of(choice, "finish_reason"); !reason.empty()) finish_reason_ = reason;
  const json::value* message = member(choice, "delta");
  if (message == nullptr) message = member(choice, "message");
  if (message == nullptr) return;
  std::string reasoning = text_of(*message, "reasoning");  // some servers send it under both names
  if (reasoning.empty()) reasoning = text_of(*message, "reasoning_content");
  delta.reasoning += reasoning;
  delta.content += text_of(*message, "content");
  add_calls(*message, tool_calls_);
}

}  // namespace quire
