#include "server/router.h"

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>

#include "base/log.h"
#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

// What a request needs before its handler may run.
enum Needs : unsigned { nothing = 0, engine = 1, json_body = 2, probe = 4 };

struct Route {
  std::string_view path;  // a trailing * stands for the rest
  Method method;
  awaitable<void> (*handler)(Exchange&, AppState&);
  unsigned needs = nothing;
};

constexpr std::array kRoutes = {
    Route{"/v1/chat/completions", Method::post, post_chat_completions, engine | json_body},
    Route{"/v1/completions", Method::post, post_completions, engine | json_body},
    Route{"/v1/models", Method::get, get_models, engine},
    Route{"/v1/models/*", Method::get, get_model, engine},
    Route{"/tokenize", Method::post, post_tokenize, engine | json_body},
    Route{"/detokenize", Method::post, post_detokenize, engine | json_body},
    Route{"/health", Method::get, get_health, probe},
    Route{"/health/live", Method::get, get_live, probe},
    Route{"/ping", Method::get, get_health, probe},
    Route{"/ping", Method::post, get_health, probe},
    Route{"/version", Method::get, get_version, probe},
    Route{"/load", Method::get, get_load, probe},
    Route{"/metrics", Method::get, get_metrics, probe},
    Route{"/metrics/", Method::get, get_metrics, probe},
};

bool matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with('*')) return route.path == path;
  const auto stem = route.path.substr(0, route.path.size() - 1);
  return path.size() > stem.size() && path.starts_with(stem);
}

struct Found {
  const Route* route = nullptr;
  bool path_exists = false;
  std::string_view allow = {};
};

Found find_route(const HttpRequest& request) {
  const Method method = request.method == Method::head ? Method::get : request.method;
  Found found;
  for (const Route& route : kRoutes) {
    if (!matches(route, request.path)) continue;
    if (route.method == method) return {&route, true, {}};
    found.path_exists = true;
    found.allow = route.method == Method::get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
  }
  return found;
}

Reply no_route(const Found& found, const HttpRequest& request) {
  if (found.path_exists && request.method == Method::options) {
    return {.status = 204, .body = {}, .content_type = {}, .allow = found.allow};
  }
  if (!found.path_exists) return plain_error_reply(404, "Not Found");
  Reply reply = plain_error_reply(405, "Method Not Allowed");
  reply.allow = found.allow;
  return reply;
}

// Only these are behind a key, as in vLLM: probes and scrapes have none.
bool is_guarded(std::string_view path) { return path.starts_with("/v1"); }

bool is_json(std::string_view content_type) {
  return content_type.empty() || content_type.starts_with("application/json");
}

std::optional<Error> engine_trouble(const AppState& app) {
  switch (app.engines.state()) {
    case EngineGroupState::ready:
      return std::nullopt;
    case EngineGroupState::starting:
      return Error{ErrorCode::overloaded, "The server is starting: " + app.engines.progress(), {}};
    case EngineGroupState::draining:
      return Error{ErrorCode::unavailable, "The server is shutting down", {}};
    case EngineGroupState::dead:
      return Error{ErrorCode::unavailable, "The engine is dead: " + app.engines.error(), {}};
  }
  return std::nullopt;
}

std::optional<Reply> refusal_of(const Route& route, const HttpRequest& request,
                                const AppState& app) {
  if (is_guarded(request.path) && !app.auth.allows(request.authorization)) {
    return error_reply({ErrorCode::unauthorized, {}, {}});
  }
  if (route.needs & json_body) {
    if (!is_json(request.content_type)) {
      return plain_error_reply(400, "Unsupported Media Type: Only 'application/json' is allowed");
    }
    if (!request.content_encoding.empty() && request.content_encoding != "identity") {
      return plain_error_reply(415, "Content-Encoding is not supported");
    }
  }
  if (route.needs & engine) {
    if (const auto trouble = engine_trouble(app)) return error_reply(*trouble);
  }
  return std::nullopt;
}

struct CountRunning {
  explicit CountRunning(std::atomic<int>& n) : num(n) { ++num; }
  ~CountRunning() { --num; }
  std::atomic<int>& num;
};

awaitable<void> run_handler(const Route& route, Exchange& exchange, AppState& app) {
  std::string trouble;
  try {
    co_return co_await route.handler(exchange, app);
  } catch (const std::exception& e) {
    if (is_cancellation(std::current_exception())) throw;
    trouble = e.what();
  }
  // What went wrong is for the log, not for the client.
  log::error("request.failed",
             {{"request_id", exchange.id()}, {"path", route.path}, {"error", trouble}});
  exchange.close_after();
  if (exchange.status() == 0) {
    const Error error{ErrorCode::internal, "Internal server error", {}};
    co_await exchange.reply(error_reply(error));
  }
}

void log_and_count(const Route& route, const Exchange& exchange, AppState& app) {
  const auto elapsed = std::chrono::steady_clock::now() - exchange.arrival();
  const double seconds = std::chrono::duration<double>(elapsed).count();
  const int status = exchange.status() ? exchange.status() : 499;  // the client left
  log::debug("http.request", {{"request_id", exchange.id()},
                              {"method", exchange.request().method_name},
                              {"path", exchange.request().path},
                              {"status", status},
                              {"seconds", seconds}});
  if (route.needs & probe) return;
  app.metrics.observe_http(route.path, exchange.request().method_name, status, seconds);
}

}  // namespace

awaitable<void> answer(Exchange& exchange, AppState& app) {
  const HttpRequest& request = exchange.request();
  const Found found = find_route(request);
  if (!found.route) co_return co_await exchange.reply(no_route(found, request));
  exchange.before_end([&] { log_and_count(*found.route, exchange, app); });
  if (auto refusal = refusal_of(*found.route, request, app)) {
    co_await exchange.reply(std::move(*refusal));
  } else if (found.route->needs & engine) {
    const CountRunning count(app.num_running);
    co_await run_handler(*found.route, exchange, app);
  } else {
    co_await run_handler(*found.route, exchange, app);
  }
  exchange.end();
}

}  // namespace quire
