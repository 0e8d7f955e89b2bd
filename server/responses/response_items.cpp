#include "server/responses/response_items.h"

#include <iterator>
#include <utility>

namespace quire {

openapi::ResponseItem& ResponseItems::open(Kind kind) {
  close("completed");
  constexpr std::string_view kPrefixes[] = {"rs_", "msg_", "fc_"};
  auto& item = items_.emplace_back();
  item.kind = kind;
  item.id = kPrefixes[static_cast<std::size_t>(kind)];
  item.id.append(request_id_).append("_").append(std::to_string(items_.size() - 1));
  is_open_ = true;
  return item;
}

void ResponseItems::close(std::string_view status) {
  if (!std::exchange(is_open_, false)) return;
  items_.back().status = status;
  if (listener_) listener_->on_done(items_.size() - 1, items_.back());
}

void ResponseItems::push_text(Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!is_open_ || items_.back().kind != kind) {
    const auto& added = open(kind);
    if (listener_) listener_->on_added(items_.size() - 1, added);
  }
  auto& item = items_.back();
  const auto logprobs = std::exchange(logprobs_, {});
  item.text += text;
  if (kind == Kind::message)
    item.logprobs.insert(item.logprobs.end(), logprobs.begin(), logprobs.end());
  if (listener_) listener_->on_text(items_.size() - 1, item, text, logprobs);
}

// A call's first delta brings its id and its name; calls never mix.
void ResponseItems::push_call(const ToolCallDelta& call) {
  const bool is_new =
      call.id || call.name || !is_open_ || items_.back().kind != Kind::function_call;
  if (is_new) {
    auto& item = open(Kind::function_call);
    item.call_id = call.id.value_or("");
    item.name = call.name.value_or("");
    if (listener_) listener_->on_added(items_.size() - 1, item);
  }
  if (call.arguments.empty()) return;
  items_.back().arguments += call.arguments;
  if (listener_) listener_->on_arguments(items_.size() - 1, items_.back(), call.arguments);
}

void ResponseItems::push(ChoiceDelta delta) {
  if (with_reasoning_) push_text(Kind::reasoning, delta.text.reasoning);
  std::ranges::move(delta.logprobs, std::back_inserter(logprobs_));
  push_text(Kind::message, delta.text.content);
  for (const ToolCallDelta& call : delta.text.tool_calls) push_call(call);
}

void ResponseItems::finish(bool whole) { close(whole ? "completed" : "incomplete"); }

}  // namespace quire
