#include "server/server.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>
#include <ctime>

#include "base/log.h"
#include "base/task_group.h"
#include "server/app_state.h"
#include "server/listener.h"
#include "server/metrics/engine_metrics.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

// After the engines have dropped what was left, a client needs this long at most to hear of it.
constexpr std::chrono::milliseconds kGoodbye{2000};
constexpr std::chrono::milliseconds kGlance{50};
constexpr std::chrono::hours kForEver{24 * 365 * 100};

// The schedulers' decisions, while there is somebody to remember them.
class DecisionFeed {
 public:
  DecisionFeed(EngineGroup& engines, Timelines& timelines) : engines_(engines) {
    engines.on_decisions(
        [&timelines](std::span<const Decision> decisions) { timelines.record(decisions); });
  }
  ~DecisionFeed() { engines_.on_decisions({}); }
  DecisionFeed(const DecisionFeed&) = delete;
  DecisionFeed& operator=(const DecisionFeed&) = delete;

 private:
  EngineGroup& engines_;
};

struct Running {
  ServerParts& parts;
  ServerHooks& hooks;
  AppState& app;
  Listener& listener;
  EngineMetricsFeed& feed;
};

constexpr std::chrono::milliseconds kDeathCheck{200};

bool ends_by_death(const Running& server) {
  return !server.parts.config.keep_after_engine_death &&
         server.parts.engines.has_dead();
}

// Start-up, then until an engine dies.
awaitable<void> run_engines(Running& server) {
  const auto started = co_await server.parts.engines.start();
  if (started.has_error()) throw Failure(started.error());
  server.feed.publish(server.parts.engine_config);
  const ReadyInfo& ready = server.parts.engines.ready();
  log::info("server.ready", {{"address", server.listener.address()},
                             {"model", server.parts.config.served_model_names.front()},
                             {"engines", ready.engines.size()},
                             {"max_model_len", ready.max_model_len},
                             {"block_size", ready.block_size},
                             {"num_gpu_blocks", ready.total_gpu_blocks()},
                             {"kv_cache_size_tokens", ready.total_kv_cache_size_tokens()}});
  if (server.hooks.on_ready) server.hooks.on_ready(server.listener.address());
  while (!ends_by_death(server)) co_await sleep_for(kDeathCheck);
}

// Not ready, but still accepting, until those who send requests know it.
awaitable<void> let_it_be_known(Running& server) {
  server.app.leaving = true;
  const auto delay = server.parts.config.drain_delay;
  if (delay.count() == 0) co_return;
  log::info("server.leaving", {{"seconds", delay.count() / 1000.0}});
  co_await sleep_for(delay);
}

awaitable<void> reload_for_ever(Listener& listener,
                                std::function<awaitable<void>()> next_reload) {
  while (true) {
    co_await next_reload();
    if (!listener.has_tls()) {
      log::info("server.nothing_to_reload", {{"because", "there is no certificate"}});
    } else if (const auto done = listener.reload_tls(); !done) {
      log::error("tls.not_reloaded", {{"error", done.error().detail}});
    } else {
      log::info("tls.reloaded");
    }
  }
}

// Who reads a long answer slowly has what is left of the time; who sends or does nothing, a moment.
awaitable<void> finish_replies(Running& server, Clock::time_point deadline) {
  const auto goodbye = Clock::now() + kGoodbye;
  bool all_ended = false;
  while (!all_ended && (Clock::now() < goodbye ||
                        (server.app.num_replying > 0 && Clock::now() < deadline)))
    all_ended = co_await with_timeout(kGlance, server.listener.wait());
}

awaitable<void> drain(Running& server) {
  const auto timeout = server.parts.config.shutdown_timeout;
  log::info("server.draining",
            {{"running", server.app.num_running.load()}, {"seconds", timeout.count() / 1000.0}});
  const auto deadline = Clock::now() + timeout;
  co_await server.parts.engines.drain(deadline);
  co_await finish_replies(server, deadline);
}

awaitable<void> leave(Running& server) {
  co_await let_it_be_known(server);
  server.listener.stop(server.app);
  co_await drain(server);
}

// For ever.
awaitable<void> report_overdue(ServerHooks& hooks) {
  co_await sleep_for(kGoodbye);
  if (hooks.on_overdue) hooks.on_overdue();
  co_await sleep_for(kForEver);
}

}  // namespace

awaitable<void> run_server(ServerParts parts, ServerHooks hooks,
                           std::function<awaitable<void>()> next_stop,
                           std::function<awaitable<void>()> next_reload) {
  const auto strand = co_await asio::this_coro::executor;
  AppState app{parts.config, parts.engine_config, parts.engines, parts.text,
               parts.metrics, parts.worker,   parts.spans};
  app.started = std::time(nullptr);
  Listener listener(parts.pool, strand, parts.config);
  EngineMetricsFeed feed(parts.engines, parts.metrics);
  const DecisionFeed decisions(parts.engines, app.timelines);
  Running server{parts, hooks, app, listener, feed};
  TaskGroup accepting(strand);
  accepting.spawn(listener.accept(app));
  if (next_reload) accepting.spawn(reload_for_ever(listener, next_reload));
  log::info("server.listening", {{"address", listener.address()}});
  if (hooks.on_listening) hooks.on_listening(listener.address());

  std::exception_ptr failure;
  try {
    co_await first_of(run_engines(server), next_stop());
    co_await first_of(leave(server), next_stop());
  } catch (...) {
    failure = std::current_exception();
  }
  listener.stop(app);
  co_await accepting.close();
  co_await first_of(listener.close(), report_overdue(hooks));
  if (failure) std::rethrow_exception(failure);
  if (ends_by_death(server)) throw EngineDied(ErrorCode::unavailable, parts.engines.error());
  log::info("server.stopped");
}

}  // namespace quire
