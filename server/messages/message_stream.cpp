#include "server/messages/message_stream.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "server/http/error_reply.h"

namespace quire {

using openapi::JsonWriter;

MessageStream::MessageStream(Exchange& exchange, const std::vector<Choice>& choices,
                             ChatReplyOptions options, const TextDefaults& defaults)
    : EventSink(exchange), choices_(choices), options_(std::move(options)), defaults_(defaults) {}

void MessageStream::write_start() {
  std::string& out = sse().begin_event("message_start");
  JsonWriter json(out);
  json.begin_object().key("type").string("message_start").key("message").begin_object();
  json.key("id").string(options_.id).key("type").string("message");
  json.key("role").string("assistant").key("model").string(options_.model);
  json.key("content").begin_array().end_array();
  json.key("stop_reason").null().key("stop_sequence").null().key("usage");
  openapi::Usage usage = usage_of(choices_, defaults_);
  usage.completion_tokens = 0;
  usage.reasoning_tokens.reset();
  openapi::append_message_usage(out, usage);
  json.end_object().end_object();
  sse().end_event();
  sse().begin_event("ping") += R"({"type":"ping"})";
  sse().end_event();
}

void MessageStream::open(Block block, const ToolCallDelta* call) {
  close();
  std::string& out = sse().begin_event("content_block_start");
  JsonWriter json(out);
  json.begin_object().key("type").string("content_block_start").key("index").integer(index_);
  json.key("content_block").begin_object();
  if (block == Block::thinking) {
    json.key("type").string("thinking").key("thinking").string("").key("signature").string("");
  } else if (block == Block::text) {
    json.key("type").string("text").key("text").string("");
  } else {
    json.key("type").string("tool_use").key("id").string(call->id.value_or(""));
    json.key("name").string(call->name.value_or("")).key("input").begin_object().end_object();
  }
  json.end_object().end_object();
  sse().end_event();
  block_ = block;
}

void MessageStream::close() {
  if (block_ == Block::none) return;
  std::string& out = sse().begin_event("content_block_stop");
  JsonWriter json(out);
  json.begin_object().key("type").string("content_block_stop").key("index").integer(index_++);
  json.end_object();
  sse().end_event();
  block_ = Block::none;
}

void MessageStream::write_text(Block block, std::string_view text) {
  if (text.empty()) return;
  if (block_ != block) open(block);
  constexpr std::string_view kTypes[] = {"", "thinking_delta", "text_delta", "input_json_delta"};
  constexpr std::string_view kMembers[] = {"", "thinking", "text", "partial_json"};
  const auto kind = static_cast<std::size_t>(block);
  std::string& out = sse().begin_event("content_block_delta");
  JsonWriter json(out);
  json.begin_object().key("type").string("content_block_delta").key("index").integer(index_);
  json.key("delta").begin_object().key("type").string(kTypes[kind]);
  json.key(kMembers[kind]).string(text).end_object().end_object();
  sse().end_event();
}

// A call's first delta brings its id and its name; calls never mix.
void MessageStream::write_call(const ToolCallDelta& call) {
  if (call.id || call.name || block_ != Block::tool_use) open(Block::tool_use, &call);
  write_text(Block::tool_use, call.arguments);
}

void MessageStream::write_stop(const ChoiceDelta& delta) {
  close();
  std::string& out = sse().begin_event("message_delta");
  out += R"({"type":"message_delta","delta":{)";
  openapi::append_message_stop(out, delta.finish_reason, delta.stop_reason);
  out += "},\"usage\":";
  openapi::append_message_usage(out, usage_of(choices_, defaults_));
  if (!delta.transfer_params.empty())
    out.append(",\"kv_transfer_params\":").append(delta.transfer_params);
  out += '}';
  sse().end_event();
  sse().begin_event("message_stop") += R"({"type":"message_stop"})";
  sse().end_event();
}

awaitable<bool> MessageStream::on_delta(Choice&, ChoiceDelta delta) {
  if (refused()) co_return false;
  const bool first = !has_begun();
  if (first) write_start();
  if (options_.include_reasoning) write_text(Block::thinking, delta.text.reasoning);
  write_text(Block::text, delta.text.content);
  for (const ToolCallDelta& call : delta.text.tool_calls) write_call(call);
  const bool ends = !delta.finish_reason.empty();
  if (ends) write_stop(delta);
  if (!first && !ends && delta.text.empty()) co_return true;
  co_return co_await sse().flush();  // of nothing, where thoughts are left out
}

void MessageStream::write_error(const Error& error) {
  const Reply reply = error_reply(error);
  sse().begin_event("error") +=
      openapi::message_error_json(reply.status, reply.error, exchange().id());
  sse().end_event();
}

awaitable<void> MessageStream::write_end() { co_await sse().end(); }

}  // namespace quire
