#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "server/generation/chat_sinks.h"

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
    : StreamSink(exchange, choices, options, "chat.completion.chunk", defaults),
      options_(std::move(options)),
      has_begun_(choices.size()) {}

void ChatStream::write_role(const Choice& choice) {
  std::string& out = begin_chunk();
  JsonWriter json(out);
  json.begin_object().key("index").integer(choice.index);
  json.key("delta").begin_object().key("role").string("assistant").key("content").string("");
  json.end_object().key("logprobs").null().key("finish_reason").null();
  json.end_object();
  std::string members;
  if (options_.return_token_ids) {
    members = ",\"prompt_token_ids\":";
    JsonWriter(members).ids(options_.prompt_ids);
  }
  end_chunk(choice, out, 0, members);
}

void ChatStream::write_echo(const Choice& choice) {
  std::string& out = begin_chunk();
  JsonWriter json(out);
  json.begin_object().key("index").integer(choice.index).key("delta").begin_object();
  json.key("content").string(options_.echo).end_object();
  json.key("logprobs").null().key("finish_reason").null().end_object();
  end_chunk(choice, out, 0);
}

void ChatStream::write_delta(const Choice& choice, const ChoiceDelta& delta) {
  std::string& out = begin_chunk();
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
    json.string(options_.finish_reason(delta.finish_reason)).key("stop_reason").raw(delta.stop_reason);
  }
  if (options_.return_token_ids) json.key("token_ids").ids(delta.token_ids);
  json.end_object();
  end_chunk(choice, out, delta);
}

awaitable<bool> ChatStream::on_delta(Choice& choice, ChoiceDelta delta) {
  if (refused()) co_return false;
  if (!has_begun_[choice.index]) {
    write_role(choice);
    if (!options_.echo.empty()) write_echo(choice);
  }
  const bool says_something = !delta.text.empty() || !delta.finish_reason.empty() ||
                              !delta.logprobs.empty() || options_.return_token_ids;
  if (!says_something && has_begun_[choice.index]) co_return true;
  has_begun_[choice.index] = true;
  if (says_something) write_delta(choice, delta);
  co_return co_await sse().flush();
}

}  // namespace quire
