// POST /v1/messages, /v1/messages/count_tokens: Anthropic's Messages API, on the path of chat.

#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "server/http/error_reply.h"
#include "server/messages/message_stream.h"
#include "server/routes/chat.h"
#include "server/routes/routes.h"

namespace quire {

using openapi::ChatCompletionRequest;

awaitable<void> post_messages(Exchange& exchange, AppState& app) {
  Result<ChatCompletionRequest> chat = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { chat = openapi::parse_messages(body); });
  if (!chat) co_return co_await exchange.reply(malformed_reply(chat.error()));
  if (!app.text.defaults().reasoning) chat->thinking_budget.reset();  // nothing to bound
  auto running = co_await start_chat(*chat, exchange, app);
  if (!running) co_return co_await exchange.reply(error_reply(running.error()));
  auto& choices = running->choices;
  ChatReplyOptions options{reply_options(*chat, "msg_", false, exchange, app)};
  options.include_reasoning = chat->include_reasoning;

  if (chat->stream) {
    MessageStream sink(exchange, choices, std::move(options), app.text.defaults());
    co_return co_await stream_choices(choices, sink, exchange);
  }
  ChatCollector sink(choices.size(), std::move(options));
  if (!co_await run_choices(choices, sink, exchange)) co_return;
  if (sink.error()) co_return co_await exchange.reply(error_reply(*sink.error()));
  const auto response = sink.take(usage_of(choices, app.text.defaults()));
  co_await exchange.reply(json_reply(openapi::message_json(response)));
}

awaitable<void> post_count_tokens(Exchange& exchange, AppState& app) {
  Result<ChatCompletionRequest> chat = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { chat = openapi::parse_count_tokens(body); });
  if (!chat) co_return co_await exchange.reply(malformed_reply(chat.error()));
  if (const auto ok = check_request(*chat, app); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  const auto prompt = co_await chat_prompt_of(*chat, kNoLimit, app);
  if (!prompt) co_return co_await exchange.reply(error_reply(prompt.error()));
  const auto tokens = static_cast<std::int64_t>(prompt->ids.size());
  co_await exchange.reply(json_reply(openapi::count_tokens_json(tokens)));
}

}  // namespace quire
