#include "engine/wire/messages.h"
#include "server/metrics/choice_tracker.h"
#include "server/metrics/metrics.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

using namespace quire;

namespace {

constexpr EngineId kZero{0};
const std::string kLabels = R"({engine="0",model_name="tiny"} )";

std::unique_ptr<Metrics> metrics_of_one_engine(bool compat = false) {
  auto metrics = std::make_unique<Metrics>(Metrics::Options{"tiny", "1.2.3", compat});
  metrics->add_engine(kZero, 1000, {{"block_size", "16"}, {"num_gpu_blocks", "257"}});
  return metrics;
}

bool has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("what the Grafana board and the routers ask for is there from the start",
          "[base][metrics]") {
  const std::string text = metrics_of_one_engine()->render();
  for (const char* name : {"e2e_request_latency_seconds_bucket",
                           "e2e_request_latency_seconds_sum",
                           "e2e_request_latency_seconds_count",
                           "prompt_tokens_total",
                           "generation_tokens_total",
                           "inter_token_latency_seconds_bucket",
                           "num_requests_running",
                           "num_requests_waiting",
                           "time_to_first_token_seconds_bucket",
                           "kv_cache_usage_perc",
                           "request_prompt_tokens_bucket",
                           "request_generation_tokens_bucket",
                           "request_success_total",
                           "request_queue_time_seconds_sum",
                           "request_prefill_time_seconds_sum",
                           "request_decode_time_seconds_sum",
                           "request_max_num_generation_tokens_sum",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "cache_config_info"}) {
    INFO(name);
    CHECK(text.find("\nvllm:" + std::string(name) + "{") != std::string::npos);
  }
  CHECK(has(text, "vllm:num_requests_running" + kLabels + "0"));
  CHECK(has(
      text,
      R"(vllm:cache_config_info{block_size="16",engine="0",model_name="tiny",num_gpu_blocks="257"} 1)"));
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    CHECK(has(text, R"(vllm:request_success_total{engine="0",finished_reason=")" +
                        std::string(reason) + R"(",model_name="tiny"} 0)"));
  }
  CHECK(text.find("\nprocess_resident_memory_bytes ") != std::string::npos);
  CHECK(text.find("\nprocess_open_fds 0\n") == std::string::npos);
  CHECK(text.find("gpu_cache_usage_perc") == std::string::npos);
}

TEST_CASE("counters follow the engine's totals and never fall", "[base][metrics]") {
  const auto metrics = metrics_of_one_engine();
  metrics->observe_step(kZero, {.num_running = 3,
                                .num_waiting = 2,
                                .num_waiting_deferred = 1,
                                .kv_cache_usage = 0.25,
                                .generation_tokens = 10,
                                .preemptions = 1,
                                .steps = 4,
                                .step_tokens = 7});
  metrics->observe_step(kZero,
                        {.num_running = 1, .generation_tokens = 12, .preemptions = 0, .steps = 5});
  const std::string text = metrics->render();
  CHECK(has(text, "vllm:generation_tokens_total" + kLabels + "12"));
  CHECK(has(text, "vllm:num_preemptions_total" + kLabels + "1"));
  CHECK(has(text, "quire:engine_steps_total" + kLabels + "5"));
  CHECK(has(text, "vllm:num_requests_running" + kLabels + "1"));
  CHECK(has(text, "vllm:iteration_tokens_total_count" + kLabels + "1"));
}

TEST_CASE("an engine that started anew goes on where its counters were", "[base][metrics]") {
  const auto metrics = metrics_of_one_engine();
  for (const std::int64_t tokens : {10, 12, 3, 5})
    metrics->observe_step(kZero, {.generation_tokens = tokens});
  CHECK(has(metrics->render(), "vllm:generation_tokens_total" + kLabels + "17"));
}

TEST_CASE("drafts are counted by their place", "[base][metrics]") {
  const auto metrics = metrics_of_one_engine();
  CHECK(metrics->render().find("spec_decode") == std::string::npos);  // nobody drafts
  metrics->observe_step(kZero, {.drafts = 3, .draft_tokens = 9, .accepted_draft_tokens = 5, .draft_positions = {{3}, {2}, {0}}});
  metrics->observe_step(kZero, {.drafts = 5, .draft_tokens = 13, .accepted_draft_tokens = 8, .draft_positions = {{4}, {3}, {1}},
                               .draft_choices = {{7}, {2}, {0}, {3}}});
  const std::string text = metrics->render();
  CHECK(has(text, "vllm:spec_decode_num_drafts_total" + kLabels + "5"));
  CHECK(has(text, "vllm:spec_decode_num_draft_tokens_total" + kLabels + "13"));
  CHECK(has(text, "vllm:spec_decode_num_accepted_tokens_total" + kLabels + "8"));
  for (const auto& [position, count] :
       {std::pair{"0", "4"}, std::pair{"1", "3"}, std::pair{"2", "1"}})
    CHECK(has(text, R"(vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",)" +
                        std::string(R"(model_name="tiny",position=")") + position + "\"} " +
                        count));
  for (const auto& [drafts, count] : {std::pair{"0", "7"}, std::pair{"1", "2"}, std::pair{"3", "3"}})
    CHECK(has(text, R"(quire:spec_decode_chosen_drafts_total{drafts=")" + std::string(drafts) +
                        R"(",engine="0",model_name="tiny"} )" + count));
}

TEST_CASE("what a bound on token gaps made of prompts is counted", "[base][metrics]") {
  const auto metrics = metrics_of_one_engine();
  metrics->observe_step(kZero, {.pace = {.chunk_tokens = 48,
                                         .whole_steps = 5,
                                         .cut_steps = 7,
                                         .least_steps = 2,
                                         .late_steps = 3}});
  const std::string text = metrics->render();
  CHECK(has(text, "quire:itl_chunk_tokens" + kLabels + "48"));
  CHECK(has(text, "quire:itl_late_steps_total" + kLabels + "3"));
  for (const auto& [chunk, count] : {std::pair{"whole", "5"}, {"cut", "7"}, {"least", "2"}})
    CHECK(has(text, R"(quire:itl_paced_steps_total{chunk=")" + std::string(chunk) +
                        R"(",engine="0",model_name="tiny"} )" + count));
}

TEST_CASE("a request leaves its traces", "[base][metrics]") {
  const auto metrics = metrics_of_one_engine();
  metrics->prompt_done(kZero, {.all = 100, .cached = 64, .external = 16}, 0.05);
  metrics->observe_token_gap(kZero, 0.02);
  metrics->request_done(kZero, {.end = RequestEnd::length,
                                .prompt_tokens = 100,
                                .cached_tokens = 64,
                                .generation_tokens = 11,
                                .max_generation_tokens = 11,
                                .max_tokens = 20,
                                .end_to_end = 2.5,
                                .queue = 0.25,
                                .prefill = 0.5,
                                .decode = 1});
  const std::string text = metrics->render();
  CHECK(has(
      text,
      R"(vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_compute"} 36)"));
  CHECK(has(
      text,
      R"(vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_cache_hit"} 48)"));
  CHECK(has(text, "vllm:prompt_tokens_total" + kLabels + "100"));
  CHECK(has(text, "vllm:request_prefill_kv_computed_tokens_sum" + kLabels + "36"));
  CHECK(has(text, "vllm:request_inference_time_seconds_sum" + kLabels + "1.5"));
  CHECK(has(text, "vllm:request_time_per_output_token_seconds_sum" + kLabels + "0.1"));
  CHECK(has(
      text,
      R"(vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 1)"));
  CHECK(has(text, R"(vllm:request_prompt_tokens_bucket{engine="0",model_name="tiny",le="50"} 0)"));
  CHECK(has(text, R"(vllm:request_prompt_tokens_bucket{engine="0",model_name="tiny",le="100"} 1)"));
}

TEST_CASE("a request of several choices is one request, of its longest choice", "[base][metrics]") {
  const auto metrics = metrics_of_one_engine();
  const auto siblings = std::make_shared<SiblingChoices>();
  std::vector<ChoiceTracker> choices;
  for (int i = 0; i < 3; ++i)
    choices.emplace_back(*metrics, kZero, Clock::now(), 5, 20, 3, siblings);
  for (const auto& [choice, tokens] : {std::pair{1, 4}, std::pair{2, 9}, std::pair{0, 7}}) {
    RequestOutput output;
    output.token_ids = {1};
    choices[static_cast<std::size_t>(choice)].on_output(output, {}, tokens);
    choices[static_cast<std::size_t>(choice)].on_end(RequestEnd::stop);
  }
  const std::string text = metrics->render();
  CHECK(has(text, "vllm:request_generation_tokens_sum" + kLabels + "20"));
  CHECK(has(text, "vllm:request_max_num_generation_tokens_count" + kLabels + "1"));
  CHECK(has(text, "vllm:request_max_num_generation_tokens_sum" + kLabels + "9"));
  CHECK(has(text, "vllm:request_params_n_count" + kLabels + "1"));
  CHECK(has(text, "vllm:request_params_n_sum" + kLabels + "3"));
}

TEST_CASE("old names come only when asked for", "[base][metrics]") {
  const auto metrics = metrics_of_one_engine(true);
  metrics->observe_step(kZero, {.kv_cache_usage = 0.5, .prefix_cache_hits = 3});
  metrics->observe_token_gap(kZero, 0.02);
  const std::string text = metrics->render();
  CHECK(has(text, "vllm:gpu_cache_usage_perc" + kLabels + "0.5"));
  CHECK(has(text, "vllm:prefix_cache_hits" + kLabels + "3"));
  CHECK(has(text, "vllm:time_per_output_token_seconds_count" + kLabels + "1"));
}

TEST_CASE("series may be written from many threads while they are read", "[base][metrics]") {
  const auto metrics = metrics_of_one_engine();
  std::vector<std::thread> writers;
  for (int t = 0; t < 3; ++t) {
    writers.emplace_back([&metrics] {
      for (int i = 0; i < 500; ++i) {
        metrics->observe_http({.handler = "/v1/models", .method = "GET", .status = 200, .seconds = 0.01,
                               .request_bytes = 10, .response_bytes = 20});
        metrics->request_rejected(Rejection::queue_full);
      }
    });
  }
  for (int i = 0; i < 20; ++i) CHECK_FALSE(metrics->render().empty());
  for (auto& writer : writers) writer.join();
  const std::string text = metrics->render();
  CHECK(has(text, R"(http_requests_total{handler="/v1/models",method="GET",status="2xx"} 1500)"));
  CHECK(has(text, R"(http_request_size_bytes_count{handler="/v1/models"} 1500)"));
  CHECK(has(text, R"(http_request_size_bytes_sum{handler="/v1/models"} 15000)"));
  CHECK(has(text, R"(http_response_size_bytes_sum{handler="/v1/models"} 30000)"));
  CHECK(has(text, R"(http_request_duration_highr_seconds_bucket{le="0.01"} 1500)"));
  CHECK(text.find("} 1500\n") != std::string::npos);
}
