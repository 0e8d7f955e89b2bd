// POST /v1/chat/completions/render, /v1/completions/render: what a request would send to the model,
// as a request to /inference/v1/generate. Nothing is generated.

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <charconv>
#include <limits>

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "server/generation/constraint_params.h"
#include "server/generation/request_params.h"
#include "server/generation/same_fields.h"
#include "server/http/error_reply.h"
#include "server/routes/chat.h"
#include "server/routes/completions.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

using openapi::JsonWriter;

void write_optional(JsonWriter& json, std::string_view key,
                    const std::optional<std::int64_t>& value) {
  json.key(key);
  value ? json.integer(*value) : json.null();
}

// 0.2 as a float is 0.20000000298 as a double.
double as_written(float value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.begin(), digits.end(), value).ptr;
  double result = 0;
  std::from_chars(digits.begin(), end, result);
  return result;
}

void write_lists(JsonWriter& json, const openapi::GenerationRequest& request,
                 const SamplingParams& params) {
  json.key("stop").begin_array();
  for (const std::string& stop : request.stop) json.string(stop);
  json.end_array().key("bad_words").begin_array();
  for (const std::string& word : request.bad_words) json.string(word);
  json.end_array();
  if (!params.allowed_tokens.empty()) json.key("allowed_token_ids").ids(params.allowed_tokens);
  if (params.logit_bias.empty()) return;
  json.key("logit_bias").begin_object();
  for (const auto& [token, bias] : params.logit_bias) {
    json.any_key(std::to_string(token)).number(as_written(bias));
  }
  json.end_object();
}

void write_whitespace(JsonWriter& json, const openapi::GenerationRequest& request) {
  if (!request.any_whitespace) json.key("disable_any_whitespace").boolean(true);
  if (request.whitespace_pattern) {
    json.key("whitespace_pattern").string(*request.whitespace_pattern);
  }
}

// Under its name in structured_outputs; `tag`: what chat makes of it, with thoughts and calls around.
void write_grammar(JsonWriter& json, const openapi::GenerationRequest& request,
                   const std::optional<std::string>& tag) {
  if (tag) {
    json.key("structured_outputs").begin_object().key("structural_tag").raw(*tag);
    write_whitespace(json, request);
    json.end_object();
    return;
  }
  if (!request.grammar) return;
  constexpr std::string_view kNames[] = {"json", "regex", "choice", "grammar", "structural_tag"};
  const openapi::OutputGrammar& grammar = *request.grammar;
  using Kind = openapi::OutputGrammar::Kind;
  const bool is_text = grammar.kind == Kind::regex || grammar.kind == Kind::grammar;
  json.key("structured_outputs").begin_object();
  json.key(kNames[static_cast<std::size_t>(grammar.kind)]);
  is_text ? json.string(grammar.text) : json.raw(grammar.text);
  write_whitespace(json, request);
  json.end_object();
}

// What /inference/v1/generate has no word for, since it knows of no thoughts and no calls.
Result<void> check_expressible(const openapi::ChatCompletionRequest& chat) {
  const auto refuse = [](const std::string& name) {
    return Error{ErrorCode::unsupported, name + " cannot be rendered: it belongs to chat alone", name};
  };
  const auto choice = chat.tool_choice.value_or(openapi::ToolChoice::automatic);
  if (choice == openapi::ToolChoice::required || choice == openapi::ToolChoice::named) {
    return refuse("tool_choice");
  }
  if (chat.thinking_budget) return refuse(chat.thinking_budget_name);
  return {};
}

struct WriteParam {
  JsonWriter& json;

  template <class Value, class Asked>
  void operator()(std::string_view name, const Value& value, const Asked&) {
    write(json.key(name), value);
  }
  static void write(JsonWriter& to, bool value) { to.boolean(value); }
  static void write(JsonWriter& to, int value) { to.integer(value); }
  static void write(JsonWriter& to, float value) { to.number(as_written(value)); }
  static void write(JsonWriter& to, const std::vector<TokenId>& value) { to.ids(value); }
  static void write(JsonWriter& to, const std::optional<std::uint64_t>& value) {
    value ? to.integer(static_cast<std::int64_t>(*value)) : to.null();
  }
};

// Only what /inference/v1/generate reads.
void write_sampling(JsonWriter& json, const openapi::GenerationRequest& request,
                    const SamplingParams& params, std::optional<std::int64_t> logprobs,
                    const std::optional<std::string>& tag) {
  json.begin_object().key("n").integer(request.n);
  json.key("max_tokens").integer(params.max_tokens);
  WriteParam write{json};
  for_each_same_field(write, params, SamplingParams::Fields(), request,
                      openapi::GenerationRequest::SamplingFields());
  write_lists(json, request, params);
  write_grammar(json, request, tag);
  json.key("include_stop_str_in_output").boolean(request.include_stop_str_in_output);
  json.key("skip_special_tokens").boolean(request.skip_special_tokens);
  write_optional(json, "logprobs", logprobs);
  write_optional(json, "prompt_logprobs", request.prompt_logprobs);
  json.end_object();
}

// What the engine would refuse is not rendered either.
Result<void> check(const std::vector<TokenId>& prompt, const SamplingParams& params, int vocab_size) {
  const auto refuse = [](std::string why) {
    return Error{ErrorCode::invalid_argument, std::move(why), "prompt"};
  };
  if (prompt.empty()) return refuse("the prompt is empty");
  if (vocab_size <= 0) vocab_size = std::numeric_limits<int>::max();
  const auto [lowest, highest] = std::ranges::minmax(prompt);
  if (lowest < 0 || highest >= vocab_size) {
    return refuse("token " + std::to_string(lowest < 0 ? lowest : highest) +
                  " is not in the vocabulary of " + std::to_string(vocab_size));
  }
  return validate(params, vocab_size);
}

// Appends the request for one prompt.
Result<void> write_request(JsonWriter& json, const openapi::GenerationRequest& request,
                           const std::vector<TokenId>& prompt, std::optional<std::int64_t> logprobs,
                           std::optional<std::int64_t> default_max_tokens,
                           const std::optional<std::string>& tag, const Exchange& exchange,
                           const AppState& app) {
  const auto params =
      sampling_params(request, app.text.defaults(),
                      {static_cast<std::int64_t>(prompt.size()), app.engines.ready().max_model_len,
                       default_max_tokens, false});
  if (!params) return params.error();
  if (const auto ok = check(prompt, *params, app.engines.ready().vocab_size); !ok) return ok.error();
  json.begin_object().key("request_id").string(request.request_id.value_or(exchange.id()));
  json.key("model").string(reply_model(request.model, app)).key("token_ids").ids(prompt);
  json.key("features").null().key("sampling_params");
  write_sampling(json, request, *params, logprobs, tag);
  json.key("stream").boolean(request.stream).key("cache_salt");
  request.cache_salt.empty() ? json.null() : json.string(request.cache_salt);
  json.key("priority").integer(request.priority).key("kv_transfer_params");
  json.raw(request.kv_transfer_params.empty() ? "null" : request.kv_transfer_params);
  json.end_object();
  return {};
}

}  // namespace

awaitable<void> post_render_chat(Exchange& exchange, AppState& app) {
  Result<openapi::ChatCompletionRequest> chat = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { chat = openapi::parse_chat_completion(body); });
  if (!chat) co_return co_await exchange.reply(malformed_reply(chat.error()));
  if (const auto ok = check_expressible(*chat); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  auto prompt = co_await checked_chat_prompt(*chat, app);
  if (!prompt) co_return co_await exchange.reply(error_reply(prompt.error()));
  std::optional<std::string> tag;
  if (const auto format = chat_format(*chat, app.text, *prompt)) {
    auto rendered = rendered_constraint(*chat, *format);
    if (!rendered) co_return co_await exchange.reply(error_reply(rendered.error()));
    tag = std::move(*rendered);
  }
  std::string body;
  JsonWriter json(body);
  const auto logprobs = chat->logprobs ? std::optional(chat->top_logprobs) : std::nullopt;
  if (const auto ok = write_request(json, *chat, prompt->ids, logprobs, {}, tag, exchange, app); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  co_await exchange.reply(json_reply(std::move(body)));
}

awaitable<void> post_render_completion(Exchange& exchange, AppState& app) {
  const std::size_t body_size = exchange.request().body.size();
  Result<openapi::CompletionRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_completion(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  const auto prompts = co_await checked_prompts(*request, body_size, app);
  if (!prompts) co_return co_await exchange.reply(error_reply(prompts.error()));
  std::string body;
  JsonWriter json(body);
  json.begin_array();
  for (const auto& prompt : *prompts) {
    const auto ok = write_request(json, *request, prompt, request->logprobs,
                                  kDefaultCompletionTokens, {}, exchange, app);
    if (!ok) co_return co_await exchange.reply(error_reply(ok.error()));
  }
  json.end_array();
  co_await exchange.reply(json_reply(std::move(body)));
}

}  // namespace quire
