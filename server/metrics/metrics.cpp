#include "server/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <vector>

#include "server/metrics/http_metrics.h"
#include "server/metrics/metric_families.h"
#include "server/metrics/metric_rows.h"
#include "server/metrics/process_metrics.h"

namespace quire {

struct Metrics::Impl {
  explicit Impl(Options o)
      : options(std::move(o)),
        http(registry),
        connections(gauge(registry, "quire:http_connections", "Open client connections", {})),
        queue_full(rejections("max_num_queued_reqs")),
        no_engine(rejections("engine_unavailable")) {
    gauge(registry, "quire:build_info", "The server's version", {{"version", options.version}})
        .Set(1);
  }

  prometheus::Counter& rejections(const char* reason) {
    return counter(registry, "vllm:admission_rejections_total",
                   "Requests refused because the queue was full, or no engine was ready",
                   {{"model_name", options.model_name}, {"engine", "0"}, {"reason", reason}});
  }

  EngineMetrics& engine(EngineId id) { return *engines.at(id.value); }

  Options options;
  prometheus::Registry registry;
  HttpMetrics http;
  prometheus::Gauge& connections;
  prometheus::Counter& queue_full;
  prometheus::Counter& no_engine;
  ProcessMetrics process;
  std::map<std::uint32_t, std::unique_ptr<EngineMetrics>> engines;  // complete before it is read
};

Metrics::Metrics(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Metrics::~Metrics() = default;

void Metrics::add_engine(EngineId engine, int max_model_len,
                         const std::map<std::string, std::string>& cache_config) {
  const Labels labels{{"model_name", impl_->options.model_name},
                      {"engine", std::to_string(engine.value)}};
  impl_->engines.emplace(engine.value,
                         std::make_unique<EngineMetrics>(impl_->registry, labels, max_model_len,
                                                         impl_->options.compat));
  Labels info = labels;
  info.insert(cache_config.begin(), cache_config.end());
  gauge(impl_->registry, "vllm:cache_config_info", "The cache's configuration, as labels", info)
      .Set(1);
  for (const char* state : {"awake", "weights_offloaded", "discard_all"}) {
    Labels sleep = labels;
    sleep.emplace("sleep_state", state);
    gauge(impl_->registry, "vllm:engine_sleep_state", "1 for the state the engine is in", sleep)
        .Set(state == std::string_view("awake") ? 1 : 0);
  }
  gauge(impl_->registry, "quire:max_model_len", "Context length in tokens", labels)
      .Set(max_model_len);
}

void Metrics::add_memory(EngineId engine, const std::vector<MemorySample>& uses) {
  for (const MemorySample& use : uses) {
    const Labels labels{{"model_name", impl_->options.model_name},
                        {"engine", std::to_string(engine.value)},
                        {"purpose", use.purpose}};
    const auto set = [&](const char* name, const char* help, std::int64_t bytes) {
      gauge(impl_->registry, name, help, labels).Set(static_cast<double>(bytes));
    };
    set("quire:memory_planned_bytes", "Device memory by purpose, as planned", use.planned_bytes);
    set("quire:memory_allocated_bytes", "Device memory by purpose, as allocated",
        use.allocated_bytes);
    set("quire:memory_pinned_bytes", "Pinned host memory by purpose", use.pinned_bytes);
  }
}

void Metrics::observe_step(EngineId engine, const EngineStats& stats) {
  impl_->engine(engine).observe(stats);
}

void Metrics::observe_waiting(EngineId engine, const EngineStats& stats) {
  for (const StatRow& row : stat_rows()) {
    if (!std::string_view(row.name).starts_with("vllm:num_requests_waiting")) continue;
    Labels labels{{"model_name", impl_->options.model_name},
                  {"engine", std::to_string(engine.value)}};
    if (row.label != nullptr) labels.emplace(row.label, row.label_value);
    gauge(impl_->registry, row.name, row.help, labels).Set(row.value(stats));
  }
}

void Metrics::observe_up(EngineId engine, bool is_up) {
  gauge(impl_->registry, "quire:engine_up", "1 while the engine takes requests",
        {{"model_name", impl_->options.model_name}, {"engine", std::to_string(engine.value)}})
      .Set(is_up ? 1 : 0);
}

void Metrics::prompt_done(EngineId engine, const PromptTokens& tokens, double to_first_token) {
  EngineMetrics& m = impl_->engine(engine);
  m.prompt_tokens.Increment(tokens.all);
  m.prompt_cached.Increment(tokens.cached - tokens.external);
  m.prompt_external.Increment(tokens.external);
  m.prompt_cached_total.Increment(tokens.cached);
  m.prompt_computed.Increment(tokens.all - tokens.cached);
  m.first_token.Observe(to_first_token);
}

void Metrics::observe_token_gap(EngineId engine, double seconds) {
  EngineMetrics& m = impl_->engine(engine);
  m.token_gap.Observe(seconds);
  if (m.old_time_per_token) m.old_time_per_token->Observe(seconds);
}

void Metrics::request_done(EngineId engine, const RequestSample& sample) {
  impl_->engine(engine).observe(sample);
}

void Metrics::request_rejected(Rejection why) {
  (why == Rejection::queue_full ? impl_->queue_full : impl_->no_engine).Increment();
}

void Metrics::observe_http(const HttpSample& sample) {
  impl_->http.observe(sample);
}

void Metrics::connection_opened() { impl_->connections.Increment(); }
void Metrics::connection_closed() { impl_->connections.Decrement(); }

std::string Metrics::render() const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  const auto add = [&families](std::vector<prometheus::MetricFamily> more) {
    std::move(more.begin(), more.end(), std::back_inserter(families));
  };
  add(impl_->http.Collect());
  add(impl_->process.Collect());
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace quire
