// POST /v1/chat/completions

#include <algorithm>
#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "server/generation/chat_sinks.h"
#include "server/generation/constraint_params.h"
#include "server/generation/push_name.h"
#include "server/http/error_reply.h"
#include "server/routes/chat.h"
#include "server/routes/routes.h"

namespace quire {

using openapi::ChatCompletionRequest;
using openapi::ToolChoice;

namespace {

// By the names that templates have for it.
bool is_asked_not_to_think(const ChatCompletionRequest& chat, const TextDefaults& defaults) {
  jinja::Dict kwargs = defaults.template_kwargs;
  if (!chat.chat_template_kwargs.empty()) {
    const jinja::Value own = jinja::parse_json(chat.chat_template_kwargs);
    for (const auto& [key, value] : own.dict()) kwargs.set(key, value);
  }
  for (const char* name : {"enable_thinking", "thinking"}) {
    const jinja::Value* value = kwargs.find(name);
    if (value != nullptr && value->is(jinja::Value::Kind::boolean)) return !value->boolean();
  }
  return chat.reasoning_effort == "none";
}

// The client's own form has the mark of a thought in it: then it says where thoughts are.
bool names_thought(const ChatCompletionRequest& chat, const ReasoningFormat& reasoning) {
  if (!chat.grammar || chat.grammar->kind == openapi::OutputGrammar::Kind::json_schema)
    return false;
  return std::ranges::any_of(reasoning.open, [&](const std::string& mark) {
    return chat.grammar->text.find(mark) != std::string::npos;
  });
}

// Where the prompt has opened no thought. False: what is demanded begins at once, and a mark that
// it begins with is text.
bool may_think(const ChatCompletionRequest& chat, const TextPipeline& text) {
  const TextDefaults& defaults = text.defaults();
  if (defaults.reasoning == nullptr) return true;
  const bool is_held = chat.grammar || chat.tool_choice == ToolChoice::required ||
                       chat.tool_choice == ToolChoice::named;
  // Being asked not to does not keep a model from it: only what is demanded does.
  if (is_held && (text.opens_thought_when_asked() || is_asked_not_to_think(chat, defaults)))
    return false;
  return !names_thought(chat, *defaults.reasoning);
}

}  // namespace

std::optional<OutputFormat> chat_format(const ChatCompletionRequest& chat, const TextPipeline& text,
                                        const ChatPrompt& prompt) {
  const TextDefaults& defaults = text.defaults();
  const bool calls =
      defaults.dialect && !chat.tools.empty() && chat.tool_choice != ToolChoice::none;
  if (!defaults.reasoning && !calls) return std::nullopt;
  OutputFormat format;
  format.dialect = defaults.dialect;
  format.calls = calls;
  format.reasoning = defaults.reasoning;
  format.starts_inside = prompt.starts_thinking;
  format.may_think = may_think(chat, text);
  if (calls) format.types = std::make_shared<ToolTypes>(chat.tools);
  format.only_calls =
      calls && (chat.tool_choice == ToolChoice::required || chat.tool_choice == ToolChoice::named);
  return format;
}

namespace {

Result<void> check_tools(const ChatCompletionRequest& chat, const TextDefaults& defaults) {
  const auto choice = chat.tool_choice.value_or(ToolChoice::automatic);
  if (chat.tools.empty() || choice == ToolChoice::none) return {};
  if (defaults.dialect) return {};
  return Error{ErrorCode::invalid_argument,
               "tools need a tool parser, and the chat template shows none; start the server with "
               "TextDefaults::dialect, or send tool_choice \"none\"",
               chat.tool_choice ? "tool_choice" : "tools"};
}

Result<void> fill_plan(const ChatCompletionRequest& chat, const TextPipeline& text,
                       const ChatPrompt& prompt, ChoicePlan& plan) {
  plan.text.one_tool_call = !chat.parallel_tool_calls;
  plan.text.wants_logprobs = chat.logprobs;
  plan.text.logprobs_of_content = chat.logprobs_of_content;
  if (chat.logprobs) plan.logprobs = static_cast<int>(chat.top_logprobs);
  plan.text.format = chat_format(chat, text, prompt);
  if (plan.text.format) plan.text.shown_specials = text.markup(plan.text.format->calls);
  auto constraint = chat_constraint(chat, plan.text.format.value_or(OutputFormat()));
  if (!constraint) return constraint.error();
  plan.constraint = std::move(*constraint);
  // What is demanded comes whole: a stop string is one of text, and there is none but the thought.
  const bool demands_call =
      chat.tool_choice == ToolChoice::required || chat.tool_choice == ToolChoice::named;
  if (demands_call && plan.constraint) plan.text.stop.clear();
  auto words = bad_words(chat.bad_words, text.tokenizer());
  if (!words) return words.error();
  plan.bad_words = std::move(*words);
  return {};
}

bool is_long(const ChatCompletionRequest& chat) {
  return text_size(chat) > kLongText || constraint_size(chat) > kLongText;
}

awaitable<Result<void>> plan_for(const ChatCompletionRequest& chat, AppState& app,
                                 const ChatPrompt& prompt, ChoicePlan& plan) {
  if (!is_long(chat)) co_return fill_plan(chat, app.text, prompt, plan);
  Result<void> filled;
  co_await run_on(app.worker, [&] { filled = fill_plan(chat, app.text, prompt, plan); });
  co_return filled;
}

}  // namespace

awaitable<Result<ChatPrompt>> chat_prompt_of(const ChatCompletionRequest& chat, std::int64_t limit,
                                             AppState& app) {
  // What a template of the client's own takes is anybody's guess.
  if (!is_long(chat) && !chat.chat_template) co_return app.text.chat_prompt(chat, limit);
  Result<ChatPrompt> prompt = Error{};
  co_await run_on(app.worker, [&] { prompt = app.text.chat_prompt(chat, limit); });
  co_return prompt;
}

awaitable<Result<ChatPrompt>> checked_chat_prompt(const ChatCompletionRequest& chat,
                                                  AppState& app) {
  if (const auto ok = check_request(chat, app); !ok) co_return ok.error();
  if (const auto ok = check_tools(chat, app.text.defaults()); !ok) co_return ok.error();
  auto prompt = co_await chat_prompt_of(chat, prompt_limit(chat, app), app);
  if (!prompt) co_return prompt.error();
  if (const auto ok = truncate_prompt(chat, app, prompt->ids); !ok) co_return ok.error();
  co_return prompt;
}

awaitable<Result<RunningChat>> start_chat(const ChatCompletionRequest& chat, Exchange& exchange,
                                          AppState& app) {
  auto prompt = co_await checked_chat_prompt(chat, app);
  if (!prompt) co_return prompt.error();
  RunningChat running;
  if (chat.return_token_ids) running.prompt_ids = prompt->ids;
  ChoicePlan plan(chat);
  plan.transfer_name = vllm_request_name(exchange.request().path, public_id(chat, exchange));
  exchange.set_transfer_name(plan.transfer_name);
  if (const auto ok = co_await plan_for(chat, app, *prompt, plan); !ok) {
    co_return ok.error();
  }
  std::vector<std::vector<TokenId>> prompts;
  prompts.push_back(std::move(prompt->ids));
  auto choices = submit_choices(plan, exchange, app, std::move(prompts));
  if (!choices) co_return choices.error();
  running.choices = std::move(*choices);
  co_return running;
}

awaitable<void> post_chat_completions(Exchange& exchange, AppState& app) {
  Result<ChatCompletionRequest> chat = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { chat = openapi::parse_chat_completion(body); });
  if (!chat) co_return co_await exchange.reply(malformed_reply(chat.error()));
  auto running = co_await start_chat(*chat, exchange, app);
  if (!running) co_return co_await exchange.reply(error_reply(running.error()));
  auto& choices = running->choices;

  ChatReplyOptions options{reply_options(*chat, "chatcmpl-", chat->logprobs, exchange, app)};
  options.include_reasoning = chat->include_reasoning;
  options.names_tool = chat->tool_choice == ToolChoice::named;
  if (chat->echo && chat->messages.back().role == "assistant") {
    options.echo = chat->messages.back().content.value_or("");
  }
  options.prompt_ids = std::move(running->prompt_ids);
  if (chat->stream) {
    ChatStream sink(exchange, choices, std::move(options), app.text.defaults());
    co_return co_await stream_choices(choices, sink, exchange);
  }
  ChatCollector sink(choices.size(), std::move(options));
  if (!co_await run_choices(choices, sink, exchange)) co_return;
  if (sink.error()) co_return co_await exchange.reply(error_reply(*sink.error()));
  const auto response = sink.take(usage_of(choices, app.text.defaults()));
  co_await exchange.reply(json_reply(openapi::to_json(response)));
}

}  // namespace quire
