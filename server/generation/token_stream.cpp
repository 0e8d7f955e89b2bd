#include "server/generation/token_stream.h"

#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "openapi/generate.h"
#include "openapi/json_writer.h"
#include "server/http/error_reply.h"

namespace quire {

using openapi::JsonWriter;

awaitable<bool> TokenStream::on_delta(Choice& choice, ChoiceDelta delta) {
  if (refused()) co_return false;
  if (delta.token_ids.empty() && delta.finish_reason.empty()) co_return true;
  std::string& out = sse().begin_event();
  JsonWriter json(out);
  json.begin_object().key("request_id").string(options_.id);
  json.key("output_mode").string(with_text_ ? "text" : "tokens");
  const auto index = static_cast<std::size_t>(choice.index);
  if (!prompt_.empty() && !has_begun_[index]) json.key("prompt_token_ids").ids(prompt_);
  has_begun_[index] = true;
  std::string part;
  openapi::append_generated(part, {.index = choice.index,
                                   .token_ids = delta.token_ids,
                                   .logprobs = options_.logprobs ? &delta.logprobs : nullptr,
                                   .text = with_text_ ? &delta.text.content : nullptr,
                                   .finish_reason = delta.finish_reason,
                                   .stop_reason = delta.stop_reason});
  json.key("choices").begin_array().raw(part).end_array().end_object();
  sse().end_event();
  co_return co_await sse().flush();
}

void TokenStream::write_error(const Error& error) { sse().event(error_body(error)); }

awaitable<void> TokenStream::write_end() {
  if (options_.include_usage) {
    std::string& out = sse().begin_event();
    JsonWriter json(out);
    json.begin_object().key("request_id").string(options_.id);
    json.key("output_mode").string(with_text_ ? "text" : "tokens");
    json.key("choices").begin_array().end_array().key("usage");
    openapi::append_usage(out, usage_of(choices_, defaults_));
    out += '}';
    sse().end_event();
  }
  co_await sse().done();
}

}  // namespace quire
