// POST /inference/v1/generate: tokens in, tokens out, as vLLM has it.

#include <boost/asio/awaitable.hpp>

#include "openapi/generate.h"
#include "server/generation/completion_sinks.h"
#include "server/generation/push_name.h"
#include "server/generation/token_stream.h"
#include "server/http/error_reply.h"
#include "server/routes/completions.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

// `told` is the prompt as it is sent.
Result<std::vector<Choice>> start(openapi::GenerateRequest& request, Exchange& exchange,
                                  AppState& app, std::vector<TokenId>& told) {
  if (const auto ok = check_request(request, app); !ok) return ok.error();
  auto& prompt = request.prompts.front().ids;
  if (const auto ok = truncate_prompt(request, app, prompt); !ok) return ok.error();
  told = prompt;
  ChoicePlan plan(request);
  plan.transfer_name = vllm_request_name(exchange.request().path, public_id(request, exchange));
  exchange.set_transfer_name(plan.transfer_name);
  if (const auto ok = fill_plan(request, app.text.tokenizer(), plan); !ok) return ok.error();
  plan.text.wants_token_ids = true;
  plan.default_max_tokens.reset();  // what the context leaves
  std::vector<std::vector<TokenId>> prompts;
  prompts.push_back(std::move(prompt));
  auto choices = submit_choices(plan, exchange, app, std::move(prompts));
  if (choices) return choices;
  Error error = choices.error();
  if (error.field == "prompt") error.field = "token_ids";
  return error;
}

}  // namespace

awaitable<void> post_generate(Exchange& exchange, AppState& app) {
  Result<openapi::GenerateRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_generate(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  std::vector<TokenId> prompt;
  auto choices = start(*request, exchange, app, prompt);
  if (!choices) co_return co_await exchange.reply(error_reply(choices.error()));
  CompletionReplyOptions options{
      reply_options(*request, "", request->logprobs.has_value(), exchange, app)};
  if (request->stream) {
    if (!request->return_token_ids) prompt.clear();
    TokenStream sink(exchange, *choices, std::move(options), request->wants_text, std::move(prompt),
                     app.text.defaults());
    co_return co_await stream_choices(*choices, sink, exchange);
  }
  options.return_token_ids = true;
  options.prompt_ids.push_back(std::move(prompt));
  CompletionCollector sink(*choices, std::move(options));
  if (!co_await run_choices(*choices, sink, exchange)) co_return;
  if (sink.error()) co_return co_await exchange.reply(error_reply(*sink.error()));
  const auto response = sink.take(usage_of(*choices, app.text.defaults()));
  co_await exchange.reply(json_reply(openapi::generate_json(response, *request)));
}

}  // namespace quire
