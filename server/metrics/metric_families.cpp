#include "server/metrics/metric_families.h"

#include <algorithm>

#include "engine/request/engine_stats.h"
#include "server/metrics/metric_rows.h"

namespace quire {

const Buckets kFirstTokenSeconds{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kTokenGapSeconds{.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                               .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const Buckets kPhaseSeconds{.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                            30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kStepTokens{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const Buckets kChoices{1, 2, 5, 10, 20};

Buckets one_two_five(int limit) {
  Buckets buckets;
  for (std::int64_t decade = 1;; decade *= 10) {
    for (const int step : {1, 2, 5}) {
      if (decade * step > limit) return buckets;
      buckets.push_back(static_cast<double>(decade * step));
    }
  }
}

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help,
                         const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help,
                             const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

namespace {

prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name, const char* help,
                                 const Labels& labels, const Buckets& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
}

Labels with(Labels labels, const char* name, const char* value) {
  labels.emplace(name, value);
  return labels;
}

constexpr auto kBySource = "vllm:prompt_tokens_by_source_total";
constexpr auto kBySourceHelp =
    "Prompt tokens by where their KV came from; external_kv_transfer: another server, or host "
    "memory and disk behind this one's cache (KV offload)";
constexpr auto kSuccess = "vllm:request_success_total";

Buckets buckets_of(BucketKind kind, int max_model_len) {
  switch (kind) {
    case BucketKind::lengths:
      return one_two_five(max_model_len);
    case BucketKind::choices:
      return kChoices;
    case BucketKind::phases:
      return kPhaseSeconds;
    case BucketKind::token_gaps:
      return kTokenGapSeconds;
  }
  return {};
}

}  // namespace

DraftMetrics::DraftMetrics(prometheus::Registry& r, const Labels& labels, std::size_t num_positions)
    : drafts_(counter(r, "vllm:spec_decode_num_drafts_total",
                      "Steps of requests that had drafts to verify", labels)),
      draft_tokens_(
          counter(r, "vllm:spec_decode_num_draft_tokens_total", "Drafted tokens", labels)),
      accepted_tokens_(counter(r, "vllm:spec_decode_num_accepted_tokens_total",
                               "Drafted tokens that held", labels)) {
  for (std::size_t i = 0; i < num_positions; ++i) {
    accepted_per_position_.emplace_back(
        counter(r, "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                "Drafted tokens that held, by place behind the token they follow",
                with(labels, "position", std::to_string(i).c_str())));
  }
  for (std::size_t i = 0; i <= num_positions; ++i) {
    rows_per_choice_.emplace_back(
        counter(r, "quire:spec_decode_chosen_drafts_total",
                "Requests after steps, by how many drafts were chosen for each at most",
                with(labels, "drafts", std::to_string(i).c_str())));
  }
}

void DraftMetrics::observe(const EngineStats& stats) {
  drafts_.follow(static_cast<double>(stats.drafts));
  draft_tokens_.follow(static_cast<double>(stats.draft_tokens));
  accepted_tokens_.follow(static_cast<double>(stats.accepted_draft_tokens));
  for (std::size_t i = 0; i < accepted_per_position_.size(); ++i)
    accepted_per_position_[i].follow(static_cast<double>(stats.draft_positions.at(i).accepted));
  const std::size_t num_choices = std::min(rows_per_choice_.size(), stats.draft_choices.size());
  for (std::size_t i = 0; i < num_choices; ++i)
    rows_per_choice_[i].follow(static_cast<double>(stats.draft_choices[i].rows));
}

RankMetrics::RankMetrics(prometheus::Registry& r, const Labels& labels, std::size_t rank)
    : memory_(gauge(r, "quire:rank_memory_bytes",
                    "Device memory of a process that has a part of the model",
                    with(labels, "rank", std::to_string(rank).c_str()))),
      waited_(counter(r, "quire:rank_wait_seconds_total",
                      "Time that a rank waited for the others in sums and the like, on a CPU",
                      with(labels, "rank", std::to_string(rank).c_str()))) {}

void RankMetrics::observe(const RankStats& stats) {
  memory_.Set(static_cast<double>(stats.memory_bytes));
  waited_.follow(stats.waited_seconds);
}

EngineMetrics::EngineMetrics(prometheus::Registry& r, const Labels& labels, int max_model_len,
                             bool compat)
    : prompt_tokens(counter(r, "vllm:prompt_tokens_total", "Prompt tokens processed", labels)),
      prompt_computed(
          counter(r, kBySource, kBySourceHelp, with(labels, "source", "local_compute"))),
      prompt_cached(
          counter(r, kBySource, kBySourceHelp, with(labels, "source", "local_cache_hit"))),
      prompt_external(
          counter(r, kBySource, kBySourceHelp, with(labels, "source", "external_kv_transfer"))),
      prompt_cached_total(
          counter(r, "vllm:prompt_tokens_cached_total", "Prompt tokens not computed", labels)),
      step_tokens(histogram(r, "vllm:iteration_tokens_total", "Tokens of an engine step", labels,
                            kStepTokens)),
      first_token(histogram(r, "vllm:time_to_first_token_seconds", "Time to the first token",
                            labels, kFirstTokenSeconds)),
      token_gap(histogram(r, "vllm:inter_token_latency_seconds", "Time between outputs", labels,
                          kTokenGapSeconds)),
      registry_(r),
      labels_(labels) {
  for (const StatRow& row : stat_rows()) {
    Series& series = stats_.emplace_back();
    if (row.compat && !compat) continue;
    const Labels own = row.label == nullptr ? labels : with(labels, row.label, row.label_value);
    if (row.kind == MetricKind::gauge) {
      series.gauge = &gauge(r, row.name, row.help, own);
    } else {
      series.counter.emplace(counter(r, row.name, row.help, own));
    }
  }
  for (const RequestRow& row : request_rows())
    requests_.push_back(
        &histogram(r, row.name, row.help, labels, buckets_of(row.buckets, max_model_len)));
  constexpr std::array kReasons{"stop", "length", "abort", "error"};
  for (std::size_t i = 0; i < kReasons.size(); ++i) {
    ended_[i] = &counter(r, kSuccess, "Requests that ended, by reason",
                         with(labels, "finished_reason", kReasons[i]));
  }
  if (!compat) return;
  old_time_per_token = &histogram(r, "vllm:time_per_output_token_seconds",
                                  "Retired: inter_token_latency", labels, kTokenGapSeconds);
}

void EngineMetrics::observe(const EngineStats& stats) {
  for (std::size_t i = 0; i < stats_.size(); ++i) {
    const double value = stat_rows()[i].value(stats);
    if (stats_[i].gauge != nullptr) stats_[i].gauge->Set(value);
    if (stats_[i].counter) stats_[i].counter->follow(value);
  }
  if (stats.step_tokens > 0) step_tokens.Observe(stats.step_tokens);
  for (std::size_t i = ranks_.size(); i < stats.ranks.size(); ++i)
    ranks_.emplace_back(registry_, labels_, i);
  for (std::size_t i = 0; i < ranks_.size() && i < stats.ranks.size(); ++i)
    ranks_[i].observe(stats.ranks[i]);
  if (stats.draft_positions.empty()) return;
  if (!drafting_) drafting_.emplace(registry_, labels_, stats.draft_positions.size());
  drafting_->observe(stats);
}

void EngineMetrics::observe(const RequestSample& sample) {
  ended_[static_cast<std::size_t>(sample.end)]->Increment();
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const RequestRow& row = request_rows()[i];
    if (row.counts == nullptr || row.counts(sample)) requests_[i]->Observe(row.value(sample));
  }
}

}  // namespace quire
