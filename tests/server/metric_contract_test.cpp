// The families of vLLM's /metrics that mean something here, one line each as vLLM declares them:
// name, type, labels beside model_name and engine with their values, buckets. A board or a router
// that was written for vLLM finds all of them before the first request.

#include "engine/request/engine_stats.h"
#include "server/metrics/metrics.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace quire;

namespace {

struct Family {
  const char* name;  // without the text format's _total, which counters get
  const char* type;
  const char* label = "";  // beside model_name and engine
  std::vector<std::string> values = {};
  std::string buckets = {};
};

const std::string kFirstToken =
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560";
const std::string kGaps = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80";
const std::string kPhases =
    "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680";
const std::string kLengths = "1 2 5 10 20 50 100 200 500 1000 2000";  // up to a context of 4096
const std::string kSteps = "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384";

const std::vector<Family> kEngineFamilies = {
    {"vllm:num_requests_running", "gauge"},
    {"vllm:num_requests_waiting", "gauge"},
    {"vllm:num_requests_waiting_by_reason", "gauge", "reason", {"capacity", "deferred"}},
    {"vllm:kv_cache_usage_perc", "gauge"},
    {"vllm:engine_sleep_state", "gauge", "sleep_state", {"awake", "weights_offloaded", "discard_all"}},
    {"vllm:cache_config_info", "gauge", "block_size", {"16"}},
    {"vllm:prefix_cache_queries", "counter"},
    {"vllm:prefix_cache_hits", "counter"},
    {"vllm:external_prefix_cache_queries", "counter"},
    {"vllm:external_prefix_cache_hits", "counter"},
    {"vllm:num_preemptions", "counter"},
    {"vllm:prompt_tokens", "counter"},
    {"vllm:generation_tokens", "counter"},
    {"vllm:prompt_tokens_by_source", "counter", "source",
     {"local_compute", "local_cache_hit", "external_kv_transfer"}},
    {"vllm:prompt_tokens_cached", "counter"},
    {"vllm:request_success", "counter", "finished_reason", {"stop", "length", "abort", "error"}},
    {"vllm:admission_rejections", "counter", "reason",
     {"max_num_queued_reqs", "engine_unavailable"}},
    {"vllm:request_prompt_tokens", "histogram", "", {}, kLengths},
    {"vllm:request_generation_tokens", "histogram", "", {}, kLengths},
    {"vllm:request_max_num_generation_tokens", "histogram", "", {}, kLengths},
    {"vllm:request_params_max_tokens", "histogram", "", {}, kLengths},
    {"vllm:request_prefill_kv_computed_tokens", "histogram", "", {}, kLengths},
    {"vllm:request_params_n", "histogram", "", {}, "1 2 5 10 20"},
    {"vllm:iteration_tokens_total", "histogram", "", {}, kSteps},
    {"vllm:time_to_first_token_seconds", "histogram", "", {}, kFirstToken},
    {"vllm:inter_token_latency_seconds", "histogram", "", {}, kGaps},
    {"vllm:request_time_per_output_token_seconds", "histogram", "", {}, kGaps},
    {"vllm:e2e_request_latency_seconds", "histogram", "", {}, kPhases},
    {"vllm:request_queue_time_seconds", "histogram", "", {}, kPhases},
    {"vllm:request_inference_time_seconds", "histogram", "", {}, kPhases},
    {"vllm:request_prefill_time_seconds", "histogram", "", {}, kPhases},
    {"vllm:request_decode_time_seconds", "histogram", "", {}, kPhases},
    {"vllm:nixl_num_kv_expired_reqs", "counter"},
};

const std::vector<Family> kDraftFamilies = {
    {"vllm:spec_decode_num_drafts", "counter"},
    {"vllm:spec_decode_num_draft_tokens", "counter"},
    {"vllm:spec_decode_num_accepted_tokens", "counter"},
    {"vllm:spec_decode_num_accepted_tokens_per_pos", "counter", "position", {"0", "1"}},
};

const std::vector<Family> kProcessFamilies = {
    {"process_cpu_seconds", "counter"},         {"process_resident_memory_bytes", "gauge"},
    {"process_virtual_memory_bytes", "gauge"},  {"process_start_time_seconds", "gauge"},
    {"process_open_fds", "gauge"},              {"process_max_fds", "gauge"},
};

using Labels = std::map<std::string, std::string>;

// A scrape: TYPE lines, and the labels of every sample by its name.
struct Scrape {
  std::map<std::string, std::string> types;
  std::map<std::string, std::vector<Labels>> samples;
};

Labels labels_of(const std::string& text) {
  Labels labels;
  std::istringstream in(text);
  std::string name, value;
  while (std::getline(in, name, '=') && in.get() == '"' && std::getline(in, value, '"')) {
    labels[name] = value;
    in.get();  // a comma
  }
  return labels;
}

Scrape parsed(const std::string& text) {
  Scrape scrape;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name, type;
    if (line.starts_with("# TYPE ") && words >> hash >> kind >> name >> type) {
      CHECK(scrape.types.emplace(name, type).second);  // once, as Prometheus demands
    } else if (!line.starts_with('#')) {
      const auto open = line.find('{'), end = std::min(open, line.find(' '));
      const auto inner = open == line.npos ? "" : line.substr(open + 1, line.rfind('}') - open - 1);
      scrape.samples[line.substr(0, end)].push_back(labels_of(inner));
    }
  }
  return scrape;
}

Scrape scrape_of_one_engine(const EngineStats& stats = {}) {
  Metrics metrics(Metrics::Options{"tiny", "1.2.3", false});
  metrics.add_engine(EngineId{0}, 4096, {{"block_size", "16"}});
  metrics.observe_step(EngineId{0}, stats);
  metrics.observe_http({.handler = "/v1/completions", .method = "POST", .status = 200});
  return parsed(metrics.render());
}

std::string exposed(const Family& family) {
  return family.name + std::string(family.type == std::string_view("counter") ? "_total" : "");
}

// Values of a label, in the order in which they are printed, of samples that have the own labels.
std::string values_of(const std::vector<Labels>& samples, const std::string& label) {
  std::string all;
  for (const Labels& labels : samples) {
    if (const auto found = labels.find(label); found != labels.end()) all += found->second + " ";
  }
  return all.substr(0, all.find_last_not_of(' ') + 1);
}

std::set<std::string> names_of(const Labels& labels) {
  std::set<std::string> names;
  for (const auto& [name, value] : labels) names.insert(name);
  return names;
}

void check_family(const Scrape& scrape, const Family& family, std::set<std::string> labels) {
  const std::string name = exposed(family);
  INFO(name);
  REQUIRE(scrape.types.count(name) == 1);
  CHECK(scrape.types.at(name) == family.type);
  if (*family.label) labels.insert(family.label);
  const bool is_histogram = family.type == std::string_view("histogram");
  const auto samples = scrape.samples.find(is_histogram ? name + "_count" : name);
  REQUIRE(samples != scrape.samples.end());
  for (const Labels& one : samples->second) CHECK(names_of(one) == labels);
  for (const std::string& value : family.values) {
    const auto has_value = [&](const Labels& one) { return one.at(family.label) == value; };
    CHECK(std::ranges::count_if(samples->second, has_value) == 1);
  }
  if (!is_histogram) return;
  CHECK(scrape.samples.count(name + "_sum") == 1);
  CHECK(values_of(scrape.samples.at(name + "_bucket"), "le") == family.buckets + " +Inf");
}

}  // namespace

TEST_CASE("an engine's families are vLLM's by name, type, labels and buckets", "[base][metrics]") {
  const Scrape scrape = scrape_of_one_engine();
  for (const Family& family : kEngineFamilies) check_family(scrape, family, {"engine", "model_name"});
  for (const Family& family : kProcessFamilies) check_family(scrape, family, {});
}

TEST_CASE("drafts have vLLM's families once somebody drafts", "[base][metrics]") {
  const Scrape scrape = scrape_of_one_engine({.drafts = 1, .draft_positions = {{1}, {0}}});
  for (const Family& family : kDraftFamilies) check_family(scrape, family, {"engine", "model_name"});
}

TEST_CASE("HTTP has the instrumentator's families", "[base][metrics]") {
  const Scrape scrape = scrape_of_one_engine();
  check_family(scrape, {"http_requests", "counter", "status", {"2xx"}}, {"handler", "method"});
  check_family(scrape, {"http_request_duration_seconds", "histogram", "", {}, "0.1 0.5 1"},
               {"handler", "method"});
  check_family(scrape, {"http_request_duration_highr_seconds", "histogram", "", {},
                        "0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1 1.5 2 2.5 3 3.5 4 4.5 5 7.5 10 30 60"},
               {});
  for (const std::string name : {"http_request_size_bytes", "http_response_size_bytes"}) {
    INFO(name);
    REQUIRE(scrape.types.count(name) == 1);
    CHECK(scrape.types.at(name) == "summary");
    for (const char* part : {"_count", "_sum"}) {
      REQUIRE(scrape.samples.count(name + part) == 1);
      CHECK(names_of(scrape.samples.at(name + part).front()) == std::set<std::string>{"handler"});
    }
  }
}
