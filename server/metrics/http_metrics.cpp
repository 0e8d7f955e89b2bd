#include "server/metrics/http_metrics.h"

#include <prometheus/metric_family.h>

#include <string_view>

namespace quire {

namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
const Buckets kSeconds{.1, .5, 1};
const Buckets kFineSeconds{.01, .025, .05, .075, .1,  .25, .5,  .75, 1,  1.5, 2,
                           2.5, 3,    3.5, 4,    4.5, 5,   7.5, 10,  30, 60};

prometheus::MetricFamily summary(const char* name, const char* help) {
  return {name, help, prometheus::MetricType::Summary, {}};
}

void add(prometheus::MetricFamily& family, const std::string& handler, std::uint64_t count,
         double sum) {
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label.push_back({"handler", handler});
  metric.summary.sample_count = count;
  metric.summary.sample_sum = sum;
}

}  // namespace

HttpMetrics::HttpMetrics(prometheus::Registry& registry)
    : requests_(prometheus::BuildCounter()
                    .Name("http_requests_total")
                    .Help("HTTP requests by handler, method and status class")
                    .Register(registry)),
      seconds_(prometheus::BuildHistogram()
                   .Name("http_request_duration_seconds")
                   .Help("Time to the end of the reply")
                   .Register(registry)),
      all_seconds_(prometheus::BuildHistogram()
                       .Name("http_request_duration_highr_seconds")
                       .Help("Time to the end of the reply, of all handlers")
                       .Register(registry)
                       .Add({}, kFineSeconds)) {}

HttpMetrics::Series& HttpMetrics::of(const HttpSample& sample) {
  const int hundreds = sample.status / 100;
  const auto found = series_.find(std::tuple(sample.handler, sample.method, hundreds));
  if (found != series_.end()) return found->second;
  const std::string handler(sample.handler), method(sample.method);
  prometheus::Labels labels{{"handler", handler}, {"method", method}};
  auto& seconds = seconds_.Add(labels, kSeconds);
  labels.emplace("status", std::to_string(hundreds) + "xx");
  const Series series{requests_.Add(labels), seconds, sizes_[handler]};
  return series_.emplace(Key(handler, method, hundreds), series).first->second;
}

void HttpMetrics::observe(const HttpSample& sample) {
  const std::lock_guard lock(mutex_);
  Series& series = of(sample);
  series.requests.Increment();
  series.seconds.Observe(sample.seconds);
  all_seconds_.Observe(sample.seconds);
  ++series.sizes.replies;
  series.sizes.request_bytes += static_cast<double>(sample.request_bytes);
  series.sizes.response_bytes += static_cast<double>(sample.response_bytes);
}

std::vector<prometheus::MetricFamily> HttpMetrics::Collect() const {
  auto requests = summary("http_request_size_bytes", "Bytes of requests' bodies");
  auto responses = summary("http_response_size_bytes",
                           "Bytes of replies' bodies; a stream counts as none, for it declares none");
  const std::lock_guard lock(mutex_);
  for (const auto& [handler, sizes] : sizes_) {
    add(requests, handler, sizes.replies, sizes.request_bytes);
    add(responses, handler, sizes.replies, sizes.response_bytes);
  }
  return {std::move(requests), std::move(responses)};
}

}  // namespace quire
