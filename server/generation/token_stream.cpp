#include "server/generation/token_stream.h"

#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "server/http/error_reply.h"

namespace quire {

using openapi::JsonWriter;

awaitable<bool> TokenStream::on_delta(Choice& choice, ChoiceDelta delta) {
  if (refused()) co_return false;
  if (delta.token_ids.empty() && delta.finish_reason.empty()) co_return true;
  std::string& out = sse().begin_event();
  JsonWriter json(out);
  json.begin_object().key("request_id").string(options_.id).key("choices").begin_array();
  json.begin_object().key("index").integer(choice.index).key("token_ids").ids(delta.token_ids);
  json.key("logprobs");
  if (options_.logprobs) {
    std::string logprobs;
    openapi::append_chat_logprobs(logprobs, delta.logprobs);
    json.raw(logprobs);
  } else {
    json.null();
  }
  json.key("finish_reason");
  delta.finish_reason.empty() ? json.null() : json.string(delta.finish_reason);
  json.end_object().end_array().end_object();
  sse().end_event();
  co_return co_await sse().flush();
}

void TokenStream::write_error(const Error& error) { sse().event(error_body(error)); }

awaitable<void> TokenStream::write_end() {
  if (options_.include_usage) {
    std::string& out = sse().begin_event();
    JsonWriter json(out);
    json.begin_object().key("request_id").string(options_.id);
    json.key("choices").begin_array().end_array().key("usage");
    openapi::append_usage(out, usage_of(choices_, defaults_));
    out += '}';
    sse().end_event();
  }
  co_await sse().done();
}

}  // namespace quire
