// POST /v1/chat/completions

#include <boost/asio/awaitable.hpp>
#include <ctime>

#include "openapi/dto_json.h"
#include "server/chat_sinks.h"
#include "server/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

using openapi::ChatCompletionRequest;
using openapi::ToolChoice;

Result<void> check_tools(const ChatCompletionRequest& chat, const TextDefaults& defaults) {
  const auto choice = chat.tool_choice.value_or(ToolChoice::automatic);
  if (chat.tools.empty() || choice == ToolChoice::none) return {};
  if (choice == ToolChoice::required || choice == ToolChoice::named) {
    return Error{ErrorCode::unsupported,
                 "tool_choice required and named functions need structured output, which this "
                 "server does not offer; use auto",
                 "tool_choice"};
  }
  if (defaults.tools || !chat.tool_choice) return {};
  return Error{ErrorCode::invalid_argument,
               "tool_choice auto needs a tool parser; start the server with "
               "--enable-auto-tool-choice and --tool-call-parser",
               "tool_choice"};
}

ChoicePlan plan_for(const ChatCompletionRequest& chat, const TextDefaults& defaults,
                    bool starts_thinking) {
  ChoicePlan plan{chat};
  plan.text.skip_special_tokens = chat.skip_special_tokens;
  plan.text.stop = chat.stop;
  plan.text.include_stop = chat.include_stop_str_in_output;
  plan.text.min_tokens = static_cast<int>(chat.min_tokens);
  plan.text.stop_token_ids = chat.stop_token_ids;
  plan.text.one_tool_call = !chat.parallel_tool_calls;
  plan.text.wants_logprobs = chat.logprobs;
  const bool calls = defaults.tools && !chat.tools.empty() && chat.tool_choice != ToolChoice::none;
  if (defaults.reasoning || calls) {
    plan.text.parser =
        OutputParserOptions{defaults.reasoning, starts_thinking, calls, !chat.stream};
  }
  if (chat.logprobs) plan.logprobs = static_cast<int>(chat.top_logprobs);
  return plan;
}

ChatReplyOptions reply_options(const ChatCompletionRequest& chat, const Exchange& exchange,
                               const AppState& app) {
  ChatReplyOptions options;
  options.id = "chatcmpl-" + chat.request_id.value_or(exchange.id());
  options.created = std::time(nullptr);
  options.model = reply_model(chat.model, app);
  const auto stream = chat.stream_options.value_or(openapi::StreamOptions{});
  options.include_usage = stream.include_usage || app.text.defaults().force_include_usage;
  options.continuous_usage = stream.continuous_usage_stats && options.include_usage;
  options.include_reasoning = chat.include_reasoning;
  options.return_token_ids = chat.return_token_ids;
  options.logprobs = chat.logprobs;
  return options;
}

awaitable<void> stream_chat(std::vector<Choice>& choices, ChatStream& sink) {
  co_await run_choices(choices, sink);
  co_await sink.finish();
}

awaitable<Result<ChatPrompt>> prompt_of(const ChatCompletionRequest& chat, AppState& app) {
  const std::int64_t limit = prompt_limit(chat, app);
  if (text_size(chat) <= kLongText) co_return app.text.chat_prompt(chat, limit);
  Result<ChatPrompt> prompt = Error{};
  co_await run_on(app.worker, [&] { prompt = app.text.chat_prompt(chat, limit); });
  co_return prompt;
}

}  // namespace

awaitable<void> post_chat_completions(Exchange& exchange, AppState& app) {
  const auto chat = openapi::parse_chat_completion(exchange.request().body);
  if (!chat) co_return co_await exchange.reply(malformed_reply(chat.error()));
  if (const auto ok = check_request(*chat, app); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  if (const auto ok = check_tools(*chat, app.text.defaults()); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  auto prompt = co_await prompt_of(*chat, app);
  if (!prompt) co_return co_await exchange.reply(error_reply(prompt.error()));

  ChatReplyOptions options = reply_options(*chat, exchange, app);
  if (options.return_token_ids) options.prompt_ids = prompt->ids;
  const ChoicePlan plan = plan_for(*chat, app.text.defaults(), prompt->starts_thinking);
  std::vector<Choice> choices;  // ~Generation() aborts in the engine on every way out
  if (const auto ok = submit_choices(plan, exchange, app, 0, std::move(prompt->ids), choices);
      !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }

  if (chat->stream) {
    ChatStream sink(exchange, choices, std::move(options), app.text.defaults());
    co_await first_of(stream_chat(choices, sink), exchange.peer_closed());
    co_return;
  }
  ChatCollector sink(choices.size(), std::move(options));
  if (co_await first_of(run_choices(choices, sink), exchange.peer_closed()) == 1) co_return;
  if (sink.error()) co_return co_await exchange.reply(error_reply(*sink.error()));
  const auto response = sink.take(usage_of(choices, app.text.defaults()));
  co_await exchange.reply(json_reply(openapi::to_json(response)));
}

}  // namespace quire
