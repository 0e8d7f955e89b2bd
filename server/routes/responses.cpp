// POST /v1/responses, GET and DELETE /v1/responses/{id}: OpenAI's Responses API, on the path of
// chat.

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <ctime>
#include <string>

#include "openapi/responses.h"
#include "server/http/error_reply.h"
#include "server/responses/response_sinks.h"
#include "server/routes/chat.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

// As the file or the flag has it: a float's own digits, not those of a double.
double as_written(float value) { return std::stod(fmt::format("{}", value)); }

using openapi::ResponsesRequest;

constexpr std::string_view kPath = "/v1/responses/";

Error unknown_response(const std::string& id, std::string_view member) {
  return {ErrorCode::not_found,
          "There is no response `" + id.substr(0, 200) +
              "`: it was not stored, was deleted, or has given way to newer ones",
          std::string(member)};
}

// Puts the conversation so far before what is asked now.
Result<void> recall(ResponsesRequest& request, ResponseStore::Owner owner, const AppState& app) {
  if (!request.previous_response_id) return {};
  const auto previous = app.responses.find(owner, *request.previous_response_id);
  if (!previous) return unknown_response(*request.previous_response_id, "previous_response_id");
  const auto& past = previous->conversation;
  request.messages.insert(request.messages.begin(), past.begin(), past.end());
  return {};
}

void instruct(ResponsesRequest& request) {
  if (!request.instructions) return;
  openapi::ChatMessage system;
  system.role = "system";
  system.content = request.instructions;
  request.messages.insert(request.messages.begin(), std::move(system));
}

ResponseRun run_of(const ResponsesRequest& request, const Exchange& exchange, const AppState& app) {
  const TextDefaults& defaults = app.text.defaults();
  const ReplyOptions options = reply_options(request, "", false, exchange, app);
  ResponseRun run{request, {}, options.id, defaults};
  run.object.id = "resp_" + options.id;
  // A client's own id may come twice, and what is stored under it stays.
  if (request.store && app.responses.find(exchange.key(), run.object.id))
    run.object.id += "-" + made_up_id();
  run.object.created = options.created;
  run.object.model = options.model;
  run.object.temperature = request.temperature.value_or(as_written(defaults.temperature.value_or(1.f)));
  run.object.top_p = request.top_p.value_or(as_written(defaults.top_p.value_or(1.f)));
  return run;
}

void keep(const ResponsesRequest& request, const openapi::ResponseObject& response,
          ResponseStore::Owner owner, AppState& app) {
  StoredResponse stored;
  openapi::append_response(stored.json, request, response);
  const auto first = request.messages.begin() + (request.instructions ? 1 : 0);
  stored.conversation.assign(first, request.messages.end());
  stored.conversation.push_back(openapi::message_of(response.output));
  app.responses.keep(owner, response.id, std::move(stored));
}

// A stored response is given whole: its events are not kept.
Result<void> check_query(std::string_view query) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(one.size() + 1, query.size()));
    const std::string_view name = one.substr(0, one.find('='));
    const bool asks = name == "starting_after" ||
                      (name == "stream" && !one.ends_with("=false") && !one.ends_with("=0"));
    if (!asks) continue;
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: a stored response is given whole; its events are not kept", name),
                 std::string(name)};
  }
  return {};
}

std::string id_of(const Exchange& exchange) { return exchange.request().path.substr(kPath.size()); }

}  // namespace

awaitable<void> post_responses(Exchange& exchange, AppState& app) {
  Result<ResponsesRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_responses(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  const ResponseStore::Owner owner = exchange.key();
  if (const auto ok = recall(*request, owner, app); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  instruct(*request);
  auto running = co_await start_chat(*request, exchange, app);
  if (!running) co_return co_await exchange.reply(error_reply(running.error()));
  auto& choices = running->choices;
  ResponseRun run = run_of(*request, exchange, app);
  if (request->store) {
    run.on_complete = [&](const openapi::ResponseObject& response) {
      keep(*request, response, owner, app);
    };
  }

  if (request->stream) {
    ResponseStream sink(exchange, choices, run);
    co_return co_await stream_choices(choices, sink, exchange);
  }
  ResponseCollector sink(choices, run);
  if (!co_await run_choices(choices, sink, exchange)) co_return;
  if (sink.error()) co_return co_await exchange.reply(error_reply(*sink.error()));
  std::string body;
  openapi::append_response(body, *request, run.object);
  co_await exchange.reply(json_reply(std::move(body)));
}

awaitable<void> post_input_tokens(Exchange& exchange, AppState& app) {
  Result<ResponsesRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_responses(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  if (const auto ok = recall(*request, exchange.key(), app); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  instruct(*request);
  if (const auto ok = check_request(*request, app); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  const auto prompt = co_await chat_prompt_of(*request, kNoLimit, app);
  if (!prompt) co_return co_await exchange.reply(error_reply(prompt.error()));
  const auto tokens = static_cast<std::int64_t>(prompt->ids.size());
  co_await exchange.reply(json_reply(openapi::input_tokens_json(tokens)));
}

awaitable<void> get_response(Exchange& exchange, AppState& app) {
  if (const auto ok = check_query(exchange.request().query); !ok) {
    co_return co_await exchange.reply(error_reply(ok.error()));
  }
  const std::string id = id_of(exchange);
  const auto stored = app.responses.find(exchange.key(), id);
  if (!stored) co_return co_await exchange.reply(error_reply(unknown_response(id, "id")));
  co_await exchange.reply(json_reply(stored->json));
}

awaitable<void> delete_response(Exchange& exchange, AppState& app) {
  const std::string id = id_of(exchange);
  if (!app.responses.erase(exchange.key(), id)) {
    co_return co_await exchange.reply(error_reply(unknown_response(id, "id")));
  }
  co_await exchange.reply(json_reply(openapi::deleted_response_json(id)));
}

}  // namespace quire
