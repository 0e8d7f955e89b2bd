// GET /health, /health/live, /ping, /version, /load, /metrics

#include <boost/asio/awaitable.hpp>

#include "openapi/json_writer.h"
#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

Reply bare(int status) { return {.status = status, .body = {}, .content_type = {}}; }

}  // namespace

// Ready: new requests are taken.
awaitable<void> get_health(Exchange& exchange, AppState& app) {
  const bool ready = app.engines.state() == EngineGroupState::ready && !app.stopping;
  co_await exchange.reply(bare(ready ? 200 : 503));
}

// Alive: worth keeping, though perhaps still starting or already draining.
awaitable<void> get_live(Exchange& exchange, AppState& app) {
  co_await exchange.reply(bare(app.engines.state() == EngineGroupState::dead ? 503 : 200));
}

awaitable<void> get_version(Exchange& exchange, AppState&) {
  std::string body;
  openapi::JsonWriter(body).begin_object().key("version").string(quire_version()).end_object();
  co_await exchange.reply(json_reply(std::move(body)));
}

awaitable<void> get_load(Exchange& exchange, AppState& app) {
  std::string body;
  openapi::JsonWriter(body).begin_object().key("server_load").integer(app.num_running).end_object();
  co_await exchange.reply(json_reply(std::move(body)));
}

awaitable<void> get_metrics(Exchange& exchange, AppState& app) {
  Reply reply{.body = app.metrics.render(),
              .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  co_await exchange.reply(std::move(reply));
}

}  // namespace quire
