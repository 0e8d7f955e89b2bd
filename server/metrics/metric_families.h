#pragma once
// Names, buckets and labels of what metrics.cpp counts; only base/metrics*.cpp include it.

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

using Labels = prometheus::Labels;
using Buckets = prometheus::Histogram::BucketBoundaries;

extern const Buckets kFirstTokenSeconds;
extern const Buckets kTokenGapSeconds;
extern const Buckets kPhaseSeconds;
extern const Buckets kStepTokens;
extern const Buckets kChoices;
// 1, 2, 5, 10, … up to the limit.
Buckets one_two_five(int limit);

// Only where somebody drafts.
struct DraftMetrics {
  DraftMetrics(prometheus::Registry& registry, const Labels& labels, std::size_t num_positions);

  prometheus::Counter &drafts, &draft_tokens, &accepted_tokens;
  std::vector<prometheus::Counter*> accepted_per_position;
};

// One engine's series of the families that vLLM labels {model_name, engine}.
struct EngineMetrics {
  EngineMetrics(prometheus::Registry& registry, const Labels& labels, int max_model_len,
                bool compat);

  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Histogram = prometheus::Histogram;

  Gauge &running, &waiting, &waiting_capacity, &waiting_deferred, &kv_cache_usage;
  Counter &prefix_queries, &prefix_hits, &preemptions, &prompt_tokens, &generation_tokens;
  Counter &prompt_computed, &prompt_cached, &prompt_external, &prompt_cached_total;
  std::array<Counter*, 4> ended;  // by RequestEnd
  Histogram &request_prompt_tokens, &request_generation_tokens, &request_max_generation_tokens;
  Histogram &request_max_tokens, &request_prefill_computed, &request_n, &step_tokens;
  Histogram &first_token, &token_gap, &time_per_token;
  Histogram &end_to_end, &queue, &inference, &prefill, &decode;

  prometheus::Registry& registry;
  const Labels labels;
  std::optional<DraftMetrics> drafting;  // from the first step of an engine that drafts

  Gauge &blocks, &free_blocks;
  Counter &steps, &late_allocations;

  // Under --metrics-compat; null otherwise.
  Gauge *old_cache_usage = nullptr, *old_prefix_queries = nullptr, *old_prefix_hits = nullptr;
  Histogram* old_time_per_token = nullptr;
};

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help,
                         const Labels& labels);
prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help,
                             const Labels& labels);

}  // namespace quire
