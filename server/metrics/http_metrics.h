#pragma once
// What prometheus-fastapi-instrumentator counts of HTTP, under its names: vLLM's boards ask for it.
// Series are made when first needed, and found again without Prometheus' maps of labels. Any thread.

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "server/metrics/metrics.h"

namespace quire {

class HttpMetrics : public prometheus::Collectable {
 public:
  explicit HttpMetrics(prometheus::Registry& registry);

  void observe(const HttpSample& sample);

  // Sizes by handler; the rest is in the registry. Summaries without quantiles, as Python's are.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Sizes {
    std::uint64_t replies = 0;
    double request_bytes = 0, response_bytes = 0;
  };
  struct Series {
    prometheus::Counter& requests;
    prometheus::Histogram& seconds;
    Sizes& sizes;
  };
  Series& of(const HttpSample& sample);

  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  prometheus::Histogram& all_seconds_;

  using Key = std::tuple<std::string, std::string, int>;  // handler, method, hundreds of the status
  mutable std::mutex mutex_;
  std::map<std::string, Sizes> sizes_;  // by handler
  std::map<Key, Series, std::less<>> series_;
};

}  // namespace quire
