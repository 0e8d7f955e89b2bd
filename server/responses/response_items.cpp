#include "server/responses/response_items.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire {

openapi::ResponseItem& ResponseItems::open(Kind kind) {
  close("completed");
  constexpr std::string_view kPrefixes[] = {"rs_", "msg_", "fc_", "ctc_"};
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

void ResponseItems::open_call(const ToolCallDelta& call) {
  const std::string function = call.name.value_or("");
  const auto& forms = request_->tool_forms;
  const auto form = std::ranges::find(forms, function, &openapi::ToolForm::function);
  const bool is_other = form != forms.end();
  auto& item = open(is_other && form->is_custom ? Kind::custom_tool_call : Kind::function_call);
  item.call_id = call.id.value_or("");
  item.function = function;
  item.name = is_other ? form->name : function;
  if (is_other) item.name_space = form->name_space;
  if (listener_) listener_->on_added(items_.size() - 1, item);
}

// A call's first delta brings its id and its name; calls never mix.
void ResponseItems::push_call(const ToolCallDelta& call) {
  if (call.id || call.name || !is_open_ || !items_.back().is_call()) open_call(call);
  if (call.arguments.empty()) return;
  items_.back().arguments += call.arguments;
  if (listener_) listener_->on_arguments(items_.size() - 1, items_.back(), call.arguments);
}

void ResponseItems::push(ChoiceDelta delta) {
  if (request_->include_reasoning) push_text(Kind::reasoning, delta.text.reasoning);
  std::ranges::move(delta.logprobs, std::back_inserter(logprobs_));
  push_text(Kind::message, delta.text.content);
  for (const ToolCallDelta& call : delta.text.tool_calls) push_call(call);
}

void ResponseItems::finish(bool whole) { close(whole ? "completed" : "incomplete"); }

}  // namespace quire
