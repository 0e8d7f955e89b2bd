#include "server/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/string.hpp>
#include <chrono>

#include "base/log.h"
#include "openapi/dto_json.h"
#include "server/http/error_reply.h"
#include "server/http/trace_id.h"
#include "server/route_table.h"
#include "server/tracing/request_spans.h"

namespace quire {

namespace {

// Anthropic's, whose clients look for errors in a form of its own.
constexpr std::string_view kMessages = "/v1/messages";

bool has_key(const Route& route, const HttpRequest& request, AppState& app) {
  if (route.needs & Route::no_key) return true;
  const bool is_admin = route.needs & Route::admin_key && !app.admin_auth.is_open();
  Auth& auth = route.needs & Route::metrics_key ? app.metrics_auth
               : is_admin                       ? app.admin_auth
                                                : app.auth;
  return auth.allows(request.authorization, request.api_key);
}

// The media type alone; parameters such as charset may follow. Without one a web page could post
// here without asking first.
bool is_json(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  type = type.substr(0, type.find_last_not_of(" \t") + 1);
  return boost::beast::iequals(type, "application/json");
}

std::optional<Error> engine_trouble(const Route& route, const AppState& app) {
  switch (app.engines.state()) {
    case EngineGroupState::ready:
      return std::nullopt;
    case EngineGroupState::starting:
      // Whether it waits for an engine that is expected back says submit().
      if (route.needs & (Route::generates | Route::pools) && app.engines.has_started())
        return std::nullopt;
      return Error{
          ErrorCode::overloaded,
          (app.engines.has_started() ? "No engine is ready: " : "The server is starting: ") +
              app.engines.progress(),
          {}};
    case EngineGroupState::draining:
      return Error{ErrorCode::unavailable, "The server is shutting down", {}};
    case EngineGroupState::dead:
      return Error{ErrorCode::unavailable, "The engine is dead: " + app.engines.error(), {}};
  }
  return std::nullopt;
}

// What the served model cannot do, by name.
std::optional<Error> wrong_task(const Route& route, const AppState& app) {
  const bool is_pooling = app.engines.ready().engines.front().pooling.task != PoolingTask::none;
  if (route.needs & Route::generates && is_pooling) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{} is a pooling model: it serves /v1/embeddings, /score and /rerank, "
                             "not {}",
                             app.config.served_model_names.front(), route.path),
                 "model"};
  }
  if (route.needs & Route::pools && !is_pooling) {
    return Error{
        ErrorCode::unsupported,
        fmt::format(
            "{} generates: it does not serve {}. A server started with PoolingOptions::runner "
            "pooling does",
            app.config.served_model_names.front(), route.path),
        "model"};
  }
  return std::nullopt;
}

Reply wrong_host(std::string_view host) {
  constexpr std::size_t kMaxEcho = 200;
  return plain_error_reply(
      403, fmt::format("This server does not answer to the name {}: it listens on a loopback "
                       "address and asks for no key. ServerConfig::allowed_hosts adds a name",
                       host.substr(0, kMaxEcho)));
}

// A page of this server's own, or one that may use it. Behind a proxy that changes the Host header
// its own pages are strangers too.
bool is_origin_of_ours(const HttpRequest& request, const CorsConfig& cors) {
  const std::string_view origin = request.origin;
  const std::size_t scheme = origin.find("://");
  return (scheme != origin.npos &&
          boost::beast::iequals(origin.substr(scheme + 3), request.host)) ||
         allows_origin(cors, origin);
}

// What does something, and needs no body: a browser sends it for any page without asking first.
bool is_forged(const Route& route, const HttpRequest& request, const CorsConfig& cors) {
  return route.method == Method::post && !(route.needs & (Route::json_body | Route::no_key)) &&
         !request.origin.empty() && !is_origin_of_ours(request, cors);
}

std::optional<Reply> refusal_of(const Route& route, const Exchange& exchange, AppState& app) {
  const HttpRequest& request = exchange.request();
  if (!app.hosts.allows(request.host)) return wrong_host(request.host);
  if (is_forged(route, request, app.config.cors)) {
    return plain_error_reply(403,
                             "A page of another origin may not do this; "
                             "CorsConfig::origins names those that may");
  }
  if (exchange.probes_only() && !(route.needs & Route::uncounted)) {
    return error_reply({ErrorCode::overloaded,
                        "Too many connections (HttpLimits::max_connections, "
                        "HttpLimits::connections_per_address)",
                        {}});
  }
  if (!has_key(route, request, app)) {
    return error_reply({ErrorCode::unauthorized, {}, {}});
  }
  if (route.needs & Route::json_body) {
    if (!is_json(request.content_type)) {
      return plain_error_reply(400,
                               "Unsupported Media Type: Only 'application/json' is allowed; send "
                               "the header Content-Type: application/json");
    }
    if (!request.content_encoding.empty() && request.content_encoding != "identity") {
      return plain_error_reply(415, "Content-Encoding is not supported; send the body as it is");
    }
  }
  if (route.needs & Route::engine) {
    if (const auto trouble = engine_trouble(route, app)) return error_reply(*trouble);
    if (const auto trouble = wrong_task(route, app)) return error_reply(*trouble);
  }
  return std::nullopt;
}

// A request under way: for /load, and of its key.
class CountRunning {
 public:
  CountRunning(std::atomic<int>& num, KeyInUse* key) : num_(num), key_(key) {
    ++num_;
    over_limit_ = key_ && !key_->begin();
    if (key_ && !over_limit_) wait_ = key_->take_turn(std::chrono::steady_clock::now());
  }
  ~CountRunning() {
    --num_;
    if (key_ && !over_limit_) key_->end();
  }
  CountRunning(const CountRunning&) = delete;
  CountRunning& operator=(const CountRunning&) = delete;

  // Unset: it may run.
  std::optional<Reply> refusal() const {
    if (wait_ > 0) {
      Reply reply = plain_error_reply(
          429, fmt::format("The key {} has had its requests or tokens of this minute; wait {} s",
                           key_->key().name, wait_));
      reply.retry_after = wait_;
      return reply;
    }
    if (!over_limit_) return std::nullopt;
    return plain_error_reply(429, fmt::format("The key {} has {} requests under way, as many as it "
                                              "may",
                                              key_->key().name, key_->key().max_concurrency));
  }

 private:
  std::atomic<int>& num_;
  KeyInUse* key_;
  bool over_limit_ = false;
  int wait_ = 0;  // seconds, until its minute allows more
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

// Of a client's text only what is one of a few: labels must not grow.
std::string_view method_label(const HttpRequest& request) {
  return request.method == Method::other ? "other" : std::string_view(request.method_name);
}

bool is_unlogged(std::string_view path, const ServerConfig& config) {
  return std::ranges::find(config.unlogged_paths, path) != config.unlogged_paths.end();
}

void log_and_count(const Route* route, const Exchange& exchange, AppState& app) {
  const auto elapsed = std::chrono::steady_clock::now() - exchange.arrival();
  const double seconds = std::chrono::duration<double>(elapsed).count();
  const int status = exchange.status() ? exchange.status() : 499;  // the client left
  const HttpRequest& request = exchange.request();
  const bool is_stray = !route && status >= 400;
  const bool wanted = (app.config.access_log && !is_unlogged(request.path, app.config)) ||
                      (is_stray && app.stray_lines.allows());
  const auto level = wanted ? log::Level::info : log::Level::debug;
  if (log::enabled(level)) {
    const KeyInUse* const key = exchange.key();
    log::write(level, "http.request",
               {{"request_id", exchange.id()},
                {"trace_id", trace_id_of(request.traceparent)},
                {"key", key ? std::string_view(key->key().name) : std::string_view()},
                {"method", request.method_name},
                {"path", request.path},
                {"status", status},
                {"seconds", seconds}});
  }
  if (route && route->needs & Route::uncounted) return;
  if (app.spans && route) {
    app.spans->take(request_spans(exchange, route->path, app.timelines.find(exchange.id()),
                                  app.config.served_model_names.front()));
  }
  app.metrics.observe_http({.handler = route ? route->path : "none",
                            .method = method_label(exchange.request()),
                            .status = status,
                            .seconds = seconds,
                            .request_bytes = exchange.request_bytes(),
                            .response_bytes = exchange.reply_bytes()});
}

// `running` ends before the last bytes leave: who has read them may ask again.
awaitable<void> answer_route(const Route& route, Exchange& exchange, AppState& app,
                             std::optional<CountRunning>& running) {
  if (const auto limit = exchange.read_time_limit(); !limit) {
    co_return co_await exchange.reply(error_reply(limit.error()));
  }
  if (auto refusal = refusal_of(route, exchange, app)) {
    co_return co_await exchange.reply(std::move(*refusal));
  }
  if (route.needs & (Route::generates | Route::pools)) {
    if (const auto rank = exchange.read_engine(app.engines.num_engines()); !rank) {
      co_return co_await exchange.reply(error_reply(rank.error()));
    }
  }
  if (!(route.needs & Route::engine)) {
    if (co_await exchange.receive_body(app.bodies)) co_await run_handler(route, exchange, app);
    co_return;
  }
  running.emplace(app.num_running, exchange.key());
  if (auto refusal = running->refusal()) co_return co_await exchange.reply(std::move(*refusal));
  if (co_await exchange.receive_body(app.bodies)) co_await run_handler(route, exchange, app);
}

}  // namespace

awaitable<void> answer_unread(Exchange& exchange, const HttpRefusal& refusal, AppState& app) {
  if (exchange.request().path.starts_with(kMessages))
    exchange.use_error_form(openapi::message_error_json);
  exchange.before_end([&] { log_and_count(nullptr, exchange, app); });
  co_await exchange.reply(plain_error_reply(refusal.status, refusal.message));
}

awaitable<void> answer(Exchange& exchange, AppState& app) {
  const HttpRequest& request = exchange.request();
  if (request.path.starts_with(kMessages)) exchange.use_error_form(openapi::message_error_json);
  const FoundRoute found = find_route(request);
  exchange.set_cors(
      cors_headers(app.config.cors, request.origin, request.method == Method::options));
  exchange.set_key(app.auth.find(request.authorization, request.api_key));
  std::optional<CountRunning> running;
  exchange.before_end([&] {
    running.reset();
    const bool is_refused = exchange.status() == 0 || exchange.status() >= 400;
    if (is_refused && !exchange.push_name().empty())
      app.engines.tell_push(exchange.push_name(), std::nullopt);
    // Of 503 a client comes again, and a proxy asks another server, with the same prefill.
    if (is_refused && exchange.status() != 503 && !exchange.fetch_params().empty())
      app.engines.refuse_fetch(exchange.fetch_params(), exchange.transfer_name());
    log_and_count(found.route, exchange, app);
  });
  if (found.route) {
    co_await answer_route(*found.route, exchange, app, running);
  } else {
    co_await exchange.reply(no_route(found, request));
  }
  exchange.end();
}

}  // namespace quire
