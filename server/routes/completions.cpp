// POST /v1/completions

#include <algorithm>
#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "server/generation/completion_sinks.h"
#include "server/generation/constraint_params.h"
#include "server/generation/fill_in_middle.h"
#include "server/generation/push_name.h"
#include "server/http/error_reply.h"
#include "server/routes/completions.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

using openapi::CompletionRequest;

}  // namespace

Result<void> fill_plan(const CompletionRequest& request, const Tokenizer& tokenizer,
                       ChoicePlan& plan) {
  plan.text.wants_logprobs = request.logprobs.has_value();
  plan.default_max_tokens = kDefaultCompletionTokens;
  if (request.logprobs) plan.logprobs = static_cast<int>(*request.logprobs);
  if (request.echo && plan.logprobs) {
    plan.prompt_logprobs = std::max(plan.prompt_logprobs.value_or(0), *plan.logprobs);
  }
  plan.text.prompt_only = request.echo && request.max_tokens == 0;
  if (plan.text.prompt_only) return {};
  auto constraint = text_constraint(request);
  if (!constraint) return constraint.error();
  plan.constraint = std::move(*constraint);
  auto words = bad_words(request.bad_words, tokenizer);
  if (!words) return words.error();
  plan.bad_words = std::move(*words);
  return {};
}

namespace {

using Prompts = std::vector<std::vector<TokenId>>;

Result<std::vector<TokenId>> around_gap(const CompletionRequest& request,
                                        const openapi::Prompt& prompt, const TextPipeline& text,
                                        std::int64_t limit) {
  if (const auto ok = text.check_length(prompt.text.size() + request.suffix.size(), limit); !ok) {
    return ok.error();
  }
  auto ids = fill_in_middle(text.tokenizer(), prompt.text, request.suffix,
                            request.add_special_tokens.value_or(true));
  if (ids) return std::move(*ids);
  return Error{ErrorCode::unsupported,
               "suffix is not supported: this model's tokenizer has no tokens for a gap in a text, "
               "such as <|fim_middle|>",
               "suffix"};
}

Result<Prompts> encode_all(const CompletionRequest& request, const TextPipeline& text,
                           std::int64_t limit) {
  Prompts prompts;
  for (const openapi::Prompt& prompt : request.prompts) {
    if (!prompt.is_text) {
      prompts.push_back(prompt.ids);
      continue;
    }
    if (!request.suffix.empty()) {
      auto framed = around_gap(request, prompt, text, limit);
      if (!framed) return framed.error();
      prompts.push_back(std::move(*framed));
      continue;
    }
    auto ids = text.encode(prompt.text, request.add_special_tokens.value_or(true), limit);
    if (!ids) return ids.error();
    prompts.push_back(std::move(*ids));
  }
  return prompts;
}

awaitable<Result<Prompts>> prompts_of(const CompletionRequest& request, std::size_t body_size,
                                      AppState& app) {
  const std::int64_t limit = prompt_limit(request, app);
  if (body_size <= kLongText) co_return encode_all(request, app.text, limit);
  Result<Prompts> prompts = Error{};
  co_await run_on(app.worker, [&] { prompts = encode_all(request, app.text, limit); });
  co_return prompts;
}

std::vector<std::string> echo_of(const CompletionRequest& request, const Prompts& prompts,
                                 const Tokenizer& tokenizer) {
  std::vector<std::string> echo;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const openapi::Prompt& prompt = request.prompts[i];
    const bool whole = prompt.is_text && !request.truncate_prompt_tokens;
    echo.push_back(whole ? prompt.text : tokenizer.decode(prompts[i], false));
  }
  return echo;
}

std::vector<openapi::TokenLogprob> first_tokens_of(const Prompts& prompts,
                                                   const Tokenizer& tokenizer, bool as_ids) {
  std::vector<openapi::TokenLogprob> tokens;
  for (const auto& prompt : prompts) {
    const TokenId id = prompt.empty() ? -1 : prompt.front();
    tokens.push_back({logprob_entry(tokenizer, id, 0, as_ids), {}, 0});
  }
  return tokens;
}

}  // namespace

awaitable<Result<Prompts>> checked_prompts(const CompletionRequest& request, std::size_t body_size,
                                           AppState& app) {
  if (const auto ok = check_request(request, app); !ok) co_return ok.error();
  auto prompts = co_await prompts_of(request, body_size, app);
  if (!prompts) co_return prompts.error();
  for (auto& prompt : *prompts) {
    if (const auto ok = truncate_prompt(request, app, prompt); !ok) co_return ok.error();
  }
  co_return prompts;
}

awaitable<void> post_completions(Exchange& exchange, AppState& app) {
  const std::size_t body_size = exchange.request().body.size();
  Result<CompletionRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_completion(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  auto prompts = co_await checked_prompts(*request, body_size, app);
  if (!prompts) co_return co_await exchange.reply(error_reply(prompts.error()));

  CompletionReplyOptions options{
      reply_options(*request, "cmpl-", request->logprobs.has_value(), exchange, app)};
  options.num_logprobs = request->logprobs.value_or(0);
  if (options.return_token_ids) options.prompt_ids = *prompts;
  if (request->echo) {
    options.echo = echo_of(*request, *prompts, app.text.tokenizer());
    options.first_tokens =
        first_tokens_of(*prompts, app.text.tokenizer(), request->return_tokens_as_token_ids);
  }
  ChoicePlan plan(*request);
  plan.transfer_name = vllm_request_name(exchange.request().path, public_id(*request, exchange));
  exchange.set_transfer_name(plan.transfer_name);
  if (const auto ok = fill_plan(*request, app.text.tokenizer(), plan); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  auto submitted = submit_choices(plan, exchange, app, std::move(*prompts));
  if (!submitted) co_return co_await exchange.reply(error_reply(submitted.error()));
  auto& choices = *submitted;

  if (request->stream) {
    CompletionStream sink(exchange, choices, std::move(options), app.text.defaults());
    co_return co_await stream_choices(choices, sink, exchange);
  }
  CompletionCollector sink(choices, std::move(options));
  if (!co_await run_choices(choices, sink, exchange)) co_return;
  if (sink.error()) co_return co_await exchange.reply(error_reply(*sink.error()));
  const auto response = sink.take(usage_of(choices, app.text.defaults()));
  co_await exchange.reply(json_reply(openapi::to_json(response)));
}

}  // namespace quire
