#pragma once
// The running server: listens at once, waits for the engines, serves, drains.

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <string>

#include "base/error.h"
#include "engine/client/engine_group.h"
#include "server/config.h"
#include "server/metrics/metrics.h"
#include "server/text_pipeline.h"
#include "server/tracing/span.h"

namespace quire {

// What a server is made of; outlives it.
struct ServerParts {
  const ServerConfig& config;
  const EngineConfig& engine_config;
  EngineGroup& engines;
  const TextPipeline& text;
  Metrics& metrics;
  asio::any_io_executor pool;    // for the connections' strands
  asio::any_io_executor worker;  // for long texts
  SpanSink* spans = nullptr;     // null: no tracing
};

// All that could be answered has been; the process is of no more use.
class EngineDied : public Failure {
 public:
  using Failure::Failure;
};

struct ServerHooks {
  std::function<void(const std::string& address)> on_listening{};
  std::function<void(const std::string& address)> on_ready{};
  // Something still works for a request long after the server was asked to stop. May end the
  // process; otherwise the server goes on waiting.
  std::function<void()> on_overdue{};
};

// Until next_stop() first ends: then it is not ready any more; after the drain delay no request is
// accepted, and running ones may finish within the shutdown timeout. Its second end cuts all that
// short. `next_reload` ends whenever the certificate shall be read again; it may be empty. Throws
// Failure when the engines do not start, EngineDied when one has died later, unless the
// configuration says to stay.
awaitable<void> run_server(ServerParts parts, ServerHooks hooks,
                           std::function<awaitable<void>()> next_stop,
                           std::function<awaitable<void>()> next_reload = {});

}  // namespace quire
