#pragma once
// What every handler gets: references to things that live as long as the server.

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <mutex>

#include "base/host_guard.h"
#include "base/log.h"
#include "engine/client/engine_group.h"
#include "server/config.h"
#include "server/http/auth.h"
#include "server/http/byte_budget.h"
#include "server/http/fair_share.h"
#include "server/metrics/metrics.h"
#include "server/responses/response_store.h"
#include "server/text_pipeline.h"
#include "server/timelines.h"
#include "server/tracing/span.h"

namespace quire {

struct AppState {
  const ServerConfig& config;
  const EngineConfig& engine_config;
  EngineGroup& engines;
  const TextPipeline& text;
  Metrics& metrics;
  asio::any_io_executor worker;  // for what takes longer than a probe may wait
  SpanSink* spans = nullptr;     // of requests; null: nobody wants them

  Auth auth{config.api_keys, config.named_keys};
  Auth metrics_auth{config.metrics_api_keys};
  Auth admin_auth{config.admin_api_keys};
  HostGuard hosts{config.uds.empty() ? config.host : "", !auth.is_open(), config.allowed_hosts};
  FairShare shares{};  // of the room for sequences
  ByteBudget bodies{config.limits.body_bytes_in_flight};
  std::mutex submitting{};  // one request's choices at a time
  ResponseStore responses{config.stored_responses};
  // All that may run and wait, beside the latest 1024 that have ended.
  Timelines timelines{1024 + static_cast<std::size_t>(engine_config.scheduler.max_num_seqs +
                                                      engine_config.scheduler.max_num_queued_reqs)};
  log::Limit stray_lines{5};  // a second, of requests for nothing that there is
  std::int64_t started = 0;  // seconds since the epoch
  std::atomic<bool> leaving{false};   // asked to stop: not ready any more, though still accepting
  std::atomic<bool> stopping{false};  // no request is accepted
  std::atomic<int> num_running{0};  // requests under way, as /load says
  std::atomic<int> num_replying{0};  // replies that have begun and are not wholly written
};

}  // namespace quire
