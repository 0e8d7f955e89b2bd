#pragma once
// Names, buckets and labels of what metrics.cpp counts; only server/metrics/ includes it.

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace quire {

struct EngineStats;
struct RankStats;
struct RequestSample;

using Labels = prometheus::Labels;
using Buckets = prometheus::Histogram::BucketBoundaries;

extern const Buckets kFirstTokenSeconds;
extern const Buckets kTokenGapSeconds;
extern const Buckets kPhaseSeconds;
extern const Buckets kStepTokens;
extern const Buckets kChoices;
// 1, 2, 5, 10, … up to the limit.
Buckets one_two_five(int limit);

// Follows an engine's total. One below the last is of an engine that started anew.
class TotalCounter {
 public:
  explicit TotalCounter(prometheus::Counter& counter) : counter_(&counter) {}
  void follow(double total) {
    counter_->Increment(total >= last_ ? total - last_ : total);
    last_ = total;
  }

 private:
  prometheus::Counter* counter_;
  double last_ = 0;
};

// Only where somebody drafts.
class DraftMetrics {
 public:
  DraftMetrics(prometheus::Registry& registry, const Labels& labels, std::size_t num_positions);

  void observe(const EngineStats& stats);

 private:
  TotalCounter drafts_, draft_tokens_, accepted_tokens_;
  std::vector<TotalCounter> accepted_per_position_, rows_per_choice_;
};

// One of the processes that divide a model.
class RankMetrics {
 public:
  RankMetrics(prometheus::Registry& registry, const Labels& labels, std::size_t rank);

  void observe(const RankStats& stats);

 private:
  prometheus::Gauge& memory_;
  TotalCounter waited_;
};

// One engine's series of the families that vLLM labels {model_name, engine}.
struct EngineMetrics {
  EngineMetrics(prometheus::Registry& registry, const Labels& labels, int max_model_len,
                bool compat);

  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Histogram = prometheus::Histogram;

  // Sets or raises every row of metric_rows.h; one thread at a time, in the engine's order.
  void observe(const EngineStats& stats);
  void observe(const RequestSample& sample);

  Counter &prompt_tokens, &prompt_computed, &prompt_cached, &prompt_external, &prompt_cached_total;
  Histogram &step_tokens, &first_token, &token_gap;
  Histogram* old_time_per_token = nullptr;  // under --metrics-compat; else null

 private:
  // Of each row; one of the two, or none under these options.
  struct Series {
    Gauge* gauge = nullptr;
    std::optional<TotalCounter> counter = {};
  };

  prometheus::Registry& registry_;
  const Labels labels_;
  std::vector<Series> stats_;             // of stat_rows()
  std::vector<Histogram*> requests_;      // of request_rows()
  std::array<Counter*, 4> ended_{};       // by RequestEnd
  std::vector<RankMetrics> ranks_;
  std::optional<DraftMetrics> drafting_;  // from the first step of an engine that drafts
};

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help,
                         const Labels& labels);
prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help,
                             const Labels& labels);

}  // namespace quire
