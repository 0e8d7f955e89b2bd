#pragma once
// Spans to an OpenTelemetry collector: OTLP over HTTP, as JSON. A queue that has an end, and a
// thread of its own that sends; who hands spans over never waits, and what finds the queue full is
// counted and dropped.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "net/url.h"
#include "server/tracing/span.h"

namespace quire {

// The body of POST /v1/traces.
std::string otlp_json(std::span<const Span> spans, std::string_view service);

class OtlpExporter : public SpanSink {
 public:
  static constexpr std::size_t kMostQueued = 4096, kMostSent = 512;

  // Throws Failure where the endpoint is no URL.
  OtlpExporter(const std::string& endpoint, std::string service);
  // Sends what is left, for two seconds at most.
  ~OtlpExporter() override;

  void take(std::vector<Span> spans) override;
  std::int64_t num_dropped() const;

 private:
  void run();
  // False: the collector did not take them.
  bool send(std::span<const Span> spans);

  const net::Url endpoint_;
  const std::string service_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Span> queue_;
  std::int64_t dropped_ = 0, told_ = 0;  // told: as the log has it
  bool stopping_ = false;
  std::chrono::steady_clock::time_point give_up_{};
  std::thread thread_;
};

}  // namespace quire
