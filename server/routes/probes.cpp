// GET /, /health, /health/ready, /health/live, /ping, /version, /load, /metrics

#include <fmt/format.h>

#include <boost/asio/awaitable.hpp>
#include <chrono>

#include "openapi/json_writer.h"
#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

struct Link {
  std::string_view path, what;
};
constexpr Link kLinks[] = {
    {"/v1/models", "the models, and what each engine allocated"},
    {"/v1/chat/completions", "POST: chat, as OpenAI's API has it"},
    {"/v1/completions", "POST: text completions"},
    {"/v1/responses", "POST: OpenAI's Responses API"},
    {"/v1/messages", "POST: Anthropic's Messages API"},
    {"/v1/embeddings", "POST: vectors of texts, of a pooling model"},
    {"/rerank", "POST: documents by their score, of a pooling model"},
    {"/debug/requests", "what became of the latest requests, and why they waited"},
    {"/docs", "all of them, with their members"},
    {"/openapi.json", "the same for programs"},
    {"/tokenize", "POST: text or messages to token ids"},
    {"/detokenize", "POST: token ids to text"},
    {"/health", "200 when requests are taken"},
    {"/health/ready", "the same, with the reason where it is not 200"},
    {"/health/live", "200 unless the server should be restarted"},
    {"/version", "this server's version"},
    {"/load", "requests under way"},
    {"/metrics", "for Prometheus"},
};

std::string index_json() {
  std::string body;
  openapi::JsonWriter json(body);
  json.begin_object().key("name").string("quire").key("version").string(quire_version());
  json.key("links").begin_object();
  for (const Link& link : kLinks) json.key(link.path).string(link.what);
  json.end_object().end_object();
  return body;
}

Reply bare(int status) { return {.status = status, .body = {}, .content_type = {}}; }

// 503 where there is a reason.
Reply condition(std::string_view status, std::string_view reason) {
  Reply reply{.status = reason.empty() ? 200 : 503, .error = std::string(reason)};
  openapi::JsonWriter json(reply.body);
  json.begin_object().key("status").string(status);
  if (!reason.empty()) json.key("reason").string(reason);
  json.end_object();
  return reply;
}

std::string why_not_ready(const AppState& app) {
  if (app.leaving) return "the server was asked to stop";
  switch (app.engines.state()) {
    case EngineGroupState::starting:
      return (app.engines.has_started() ? "no engine is ready: " : "starting: ") +
             app.engines.progress();
    case EngineGroupState::draining:
      return "the server was asked to stop";
    case EngineGroupState::dead:
      return "the engine is dead: " + app.engines.error();
    case EngineGroupState::ready:
      break;
  }
  if (!app.engines.has_room()) return "the queue is full (SchedulerConfig::max_num_queued_reqs)";
  return {};
}

}  // namespace

// For programs; browsers get the page.
awaitable<void> get_index(Exchange& exchange, AppState&) {
  co_await exchange.reply(json_reply(index_json()));
}

// Up: loaded, and not asked to stop.
awaitable<void> get_health(Exchange& exchange, AppState& app) {
  const bool up = app.engines.state() == EngineGroupState::ready && !app.leaving;
  co_await exchange.reply(bare(up ? 200 : 503));
}

// Ready: a request that came now would be taken.
awaitable<void> get_ready(Exchange& exchange, AppState& app) {
  const std::string why_not = why_not_ready(app);
  co_await exchange.reply(condition(why_not.empty() ? "ready" : "not ready", why_not));
}

// Alive: worth keeping, though perhaps still starting or already draining. An engine that has work
// and says nothing for long will not come back by itself.
awaitable<void> get_live(Exchange& exchange, AppState& app) {
  const auto limit = app.config.stall_timeout;
  if (app.engines.state() == EngineGroupState::dead) {
    co_return co_await exchange.reply(condition("dead", app.engines.error()));
  }
  const auto silence = app.engines.silence();
  if (limit.count() > 0 && silence > limit) {
    co_return co_await exchange.reply(
        condition("stalled", fmt::format("an engine has requests and has said nothing for {:.1f} s "
                                         "(ServerConfig::stall_timeout)",
                                         std::chrono::duration<double>(silence).count())));
  }
  co_await exchange.reply(bare(200));
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
  for (int i = 0; i < app.engines.num_engines(); ++i) {
    const EngineId engine{static_cast<std::uint32_t>(i)};
    app.metrics.observe_up(engine, app.engines.is_up(engine));
    if (app.engines.has_started())
      app.metrics.observe_waiting(engine, app.engines.stats(engine));
  }
  Reply reply{.body = app.metrics.render(),
              .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  co_await exchange.reply(std::move(reply));
}

}  // namespace quire
