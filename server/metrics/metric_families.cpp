#include "server/metrics/metric_families.h"

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

constexpr auto kByReason = "vllm:num_requests_waiting_by_reason";
constexpr auto kBySource = "vllm:prompt_tokens_by_source_total";
constexpr auto kSuccess = "vllm:request_success_total";

}  // namespace

DraftMetrics::DraftMetrics(prometheus::Registry& r, const Labels& labels, std::size_t num_positions)
    : drafts(counter(r, "vllm:spec_decode_num_drafts_total",
                     "Steps of requests that had drafts to verify", labels)),
      draft_tokens(counter(r, "vllm:spec_decode_num_draft_tokens_total", "Drafted tokens", labels)),
      accepted_tokens(counter(r, "vllm:spec_decode_num_accepted_tokens_total",
                              "Drafted tokens that held", labels)) {
  for (std::size_t i = 0; i < num_positions; ++i) {
    accepted_per_position.push_back(
        &counter(r, "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                 "Drafted tokens that held, by place behind the token they follow",
                 with(labels, "position", std::to_string(i).c_str())));
  }
}

EngineMetrics::EngineMetrics(prometheus::Registry& r, const Labels& labels, int max_model_len,
                             bool compat)
    : running(gauge(r, "vllm:num_requests_running", "Requests in model execution", labels)),
      waiting(gauge(r, "vllm:num_requests_waiting", "Requests waiting to be processed", labels)),
      waiting_capacity(
          gauge(r, kByReason, "Waiting requests by reason", with(labels, "reason", "capacity"))),
      waiting_deferred(
          gauge(r, kByReason, "Waiting requests by reason", with(labels, "reason", "deferred"))),
      kv_cache_usage(gauge(r, "vllm:kv_cache_usage_perc", "KV blocks in use, 1 = all", labels)),
      prefix_queries(
          counter(r, "vllm:prefix_cache_queries_total", "Prefix cache: tokens looked up", labels)),
      prefix_hits(counter(r, "vllm:prefix_cache_hits_total", "Prefix cache: tokens found", labels)),
      preemptions(counter(r, "vllm:num_preemptions_total", "Preemptions", labels)),
      prompt_tokens(counter(r, "vllm:prompt_tokens_total", "Prompt tokens processed", labels)),
      generation_tokens(counter(r, "vllm:generation_tokens_total", "Tokens generated", labels)),
      prompt_computed(counter(r, kBySource, "Prompt tokens by where their KV came from",
                              with(labels, "source", "local_compute"))),
      prompt_cached(counter(r, kBySource, "Prompt tokens by where their KV came from",
                            with(labels, "source", "local_cache_hit"))),
      prompt_external(counter(r, kBySource, "Prompt tokens by where their KV came from",
                              with(labels, "source", "external_kv_transfer"))),
      prompt_cached_total(
          counter(r, "vllm:prompt_tokens_cached_total", "Prompt tokens not computed", labels)),
      request_prompt_tokens(histogram(r, "vllm:request_prompt_tokens", "Prompt tokens of a request",
                                      labels, one_two_five(max_model_len))),
      request_generation_tokens(histogram(r, "vllm:request_generation_tokens",
                                          "Tokens generated for a request", labels,
                                          one_two_five(max_model_len))),
      request_max_generation_tokens(histogram(r, "vllm:request_max_num_generation_tokens",
                                              "Most tokens of any choice of a request", labels,
                                              one_two_five(max_model_len))),
      request_max_tokens(histogram(r, "vllm:request_params_max_tokens", "max_tokens of a request",
                                   labels, one_two_five(max_model_len))),
      request_prefill_computed(histogram(r, "vllm:request_prefill_kv_computed_tokens",
                                         "Prompt tokens computed, cached ones left out", labels,
                                         one_two_five(max_model_len))),
      request_n(histogram(r, "vllm:request_params_n", "n of a request", labels, kChoices)),
      step_tokens(histogram(r, "vllm:iteration_tokens_total", "Tokens of an engine step", labels,
                            kStepTokens)),
      first_token(histogram(r, "vllm:time_to_first_token_seconds", "Time to the first token",
                            labels, kFirstTokenSeconds)),
      token_gap(histogram(r, "vllm:inter_token_latency_seconds", "Time between outputs", labels,
                          kTokenGapSeconds)),
      time_per_token(histogram(r, "vllm:request_time_per_output_token_seconds",
                               "A request's mean time per output token", labels, kTokenGapSeconds)),
      end_to_end(histogram(r, "vllm:e2e_request_latency_seconds", "Arrival to end", labels,
                           kPhaseSeconds)),
      queue(histogram(r, "vllm:request_queue_time_seconds", "Waiting in the engine", labels,
                      kPhaseSeconds)),
      inference(
          histogram(r, "vllm:request_inference_time_seconds", "Running", labels, kPhaseSeconds)),
      prefill(histogram(r, "vllm:request_prefill_time_seconds", "Running, up to the first token",
                        labels, kPhaseSeconds)),
      decode(histogram(r, "vllm:request_decode_time_seconds", "Running, after the first token",
                       labels, kPhaseSeconds)),
      registry(r),
      labels(labels),
      blocks(gauge(r, "quire:kv_blocks", "KV blocks that requests can use", labels)),
      free_blocks(gauge(r, "quire:kv_blocks_free", "KV blocks that no request uses", labels)),
      steps(counter(r, "quire:engine_steps_total", "Engine steps: a heartbeat", labels)),
      late_allocations(counter(r, "quire:late_allocations_total",
                               "Allocations on the device after start-up; none should be",
                               labels)) {
  constexpr std::array kReasons{"stop", "length", "abort", "error"};
  for (std::size_t i = 0; i < kReasons.size(); ++i) {
    ended[i] = &counter(r, kSuccess, "Requests that ended, by reason",
                        with(labels, "finished_reason", kReasons[i]));
  }
  if (!compat) return;
  old_cache_usage = &gauge(r, "vllm:gpu_cache_usage_perc", "Retired: kv_cache_usage_perc", labels);
  old_prefix_queries = &gauge(r, "vllm:prefix_cache_queries", "Without _total", labels);
  old_prefix_hits = &gauge(r, "vllm:prefix_cache_hits", "Without _total", labels);
  old_time_per_token = &histogram(r, "vllm:time_per_output_token_seconds",
                                  "Retired: inter_token_latency", labels, kTokenGapSeconds);
}

}  // namespace quire
