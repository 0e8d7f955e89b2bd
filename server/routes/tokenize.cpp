// POST /tokenize, /detokenize

#include <fmt/format.h>

#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "server/generation/choices.h"
#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

Result<std::vector<TokenId>> tokens_of(const openapi::TokenizeRequest& request,
                                       const TextPipeline& text) {
  if (!request.chat) {
    return text.encode(*request.prompt, request.add_special_tokens.value_or(true), kNoLimit);
  }
  auto prompt = text.chat_prompt(*request.chat, kNoLimit);
  if (!prompt) return prompt.error();
  return std::move(prompt->ids);
}

Result<void> check_model(const std::string& model, const AppState& app) {
  openapi::GenerationRequest request;
  request.model = model;
  return check_request(request, app);
}

}  // namespace

awaitable<void> post_tokenize(Exchange& exchange, AppState& app) {
  const std::size_t body_size = exchange.request().body.size();
  Result<openapi::TokenizeRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_tokenize(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  if (const auto ok = check_model(request->model, app); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  Result<std::vector<TokenId>> tokens = Error{};
  const auto work = [&] { tokens = tokens_of(*request, app.text); };
  const bool own_template = request->chat && request->chat->chat_template;
  if (body_size <= kLongText && !own_template) {
    work();
  } else {
    co_await run_on(app.worker, work);
  }
  if (!tokens) co_return co_await exchange.reply(error_reply(tokens.error()));

  openapi::TokenizeResponse response;
  response.tokens = std::move(*tokens);
  response.max_model_len = app.engines.ready().max_model_len;
  if (request->return_token_strs) {
    auto& texts = response.token_strs.emplace();
    for (const TokenId id : response.tokens) {
      texts.emplace_back(app.text.tokenizer().id_to_token(id));
    }
  }
  co_await exchange.reply(json_reply(openapi::to_json(response)));
}

awaitable<void> post_detokenize(Exchange& exchange, AppState& app) {
  const std::size_t body_size = exchange.request().body.size();
  Result<openapi::DetokenizeRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_detokenize(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  if (const auto ok = check_model(request->model, app); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  const Tokenizer& tokenizer = app.text.tokenizer();
  for (const TokenId id : request->tokens) {
    if (id >= 0 && id < tokenizer.vocab_size()) continue;
    const Error error{
        ErrorCode::invalid_argument,
        fmt::format("Token id {} is out of vocabulary (size {})", id, tokenizer.vocab_size()),
        "tokens"};
    co_return co_await exchange.reply(error_reply(error));
  }
  std::string text;
  const auto work = [&] { text = openapi::detokenize_json(tokenizer.decode(request->tokens, false)); };
  if (body_size <= kLongText) {
    work();
  } else {
    co_await run_on(app.worker, work);
  }
  co_await exchange.reply(json_reply(std::move(text)));
}

}  // namespace quire
