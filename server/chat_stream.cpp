#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "server/chat_sinks.h"
#include "server/error_reply.h"

namespace quire {

namespace {

using openapi::JsonWriter;

void write_tool_calls(JsonWriter& json, const std::vector<ToolCallDelta>& calls) {
  json.key("tool_calls").begin_array();
  for (const ToolCallDelta& call : calls) {
    json.begin_object().key("index").integer(call.index);
    if (call.id) json.key("id").string(*call.id).key("type").string("function");
    json.key("function").begin_object();
    if (call.name) json.key("name").string(*call.name);
    json.key("arguments").string(call.arguments).end_object().end_object();
  }
  json.end_array();
}

}  // namespace

ChatStream::ChatStream(Exchange& exchange, const std::vector<Choice>& choices,
                       ChatReplyOptions options, const TextDefaults& defaults)
    : exchange_(exchange),
      choices_(choices),
      options_(std::move(options)),
      defaults_(defaults),
      chunks_(options_.id, "chat.completion.chunk", options_.created, options_.model),
      has_begun_(choices.size()) {}

SseWriter& ChatStream::sse() {
  if (!sse_) sse_ = &exchange_.begin_sse();
  return *sse_;
}

void ChatStream::end_chunk(const Choice& choice, std::string& out) {
  if (!options_.continuous_usage) return chunks_.end(out);
  openapi::Usage usage;
  usage.prompt_tokens = choice.prompt_tokens;
  usage.completion_tokens = choice.text.num_tokens();
  chunks_.end(out, &usage);
}

void ChatStream::write_role(const Choice& choice) {
  std::string& out = sse().begin_event();
  chunks_.begin(out);
  JsonWriter json(out);
  json.begin_object().key("index").integer(choice.index);
  json.key("delta").begin_object().key("role").string("assistant").key("content").string("");
  json.end_object().key("logprobs").null().key("finish_reason").null();
  if (options_.return_token_ids) json.key("prompt_token_ids").ids(options_.prompt_ids);
  json.end_object();
  end_chunk(choice, out);
  sse().end_event();
}

void ChatStream::write_delta(const Choice& choice, const ChoiceDelta& delta) {
  std::string& out = sse().begin_event();
  chunks_.begin(out);
  JsonWriter json(out);
  json.begin_object().key("index").integer(choice.index).key("delta").begin_object();
  if (!delta.text.reasoning.empty() && options_.include_reasoning) {
    json.key("reasoning").string(delta.text.reasoning);
    json.key("reasoning_content").string(delta.text.reasoning);
  }
  const bool is_last_and_bare = !delta.finish_reason.empty() && delta.text.empty();
  if (!delta.text.content.empty() || is_last_and_bare) {
    json.key("content").string(delta.text.content);
  }
  if (!delta.text.tool_calls.empty()) write_tool_calls(json, delta.text.tool_calls);
  json.end_object().key("logprobs");
  if (options_.logprobs && !delta.logprobs.empty()) {
    std::string logprobs;
    openapi::append_chat_logprobs(logprobs, delta.logprobs);
    json.raw(logprobs);
  } else {
    json.null();
  }
  json.key("finish_reason");
  if (delta.finish_reason.empty()) {
    json.null();
  } else {
    json.string(delta.finish_reason).key("stop_reason").raw(delta.stop_reason);
  }
  if (options_.return_token_ids) json.key("token_ids").ids(delta.token_ids);
  json.end_object();
  end_chunk(choice, out);
  sse().end_event();
}

awaitable<bool> ChatStream::on_delta(Choice& choice, ChoiceDelta delta) {
  if (!has_begun_[choice.index]) write_role(choice);
  const bool says_something = !delta.text.empty() || !delta.finish_reason.empty() ||
                              !delta.logprobs.empty() || options_.return_token_ids;
  if (!says_something && has_begun_[choice.index]) co_return true;
  has_begun_[choice.index] = true;
  if (says_something) write_delta(choice, delta);
  co_return co_await sse().flush();
}

awaitable<bool> ChatStream::on_error(Choice&, const Error& error) {
  if (!sse_ && choices_.size() == 1) {
    co_await exchange_.reply(error_reply(error));
    co_return false;
  }
  sse().event(error_body(error));
  co_return co_await sse().flush();
}

awaitable<void> ChatStream::finish() {
  if (!sse_) co_return;  // it ended before it began; the reply has been sent
  if (options_.include_usage) {
    chunks_.usage_chunk(sse_->begin_event(), usage_of(choices_, defaults_));
    sse_->end_event();
  }
  co_await sse_->done();
}

}  // namespace quire
