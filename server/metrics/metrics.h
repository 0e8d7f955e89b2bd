#pragma once
// The registry behind /metrics: vLLM's families under their names (docs: what each means is vLLM's
// definition), this server's own under quire:, and process_*. Any thread; samples are plain structs
// so that nobody else needs the Prometheus library.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire {

struct EngineStats;

// What one purpose takes of an engine's device.
struct MemorySample {
  std::string purpose;
  std::int64_t planned_bytes = 0;
  std::int64_t allocated_bytes = 0;
  std::int64_t pinned_bytes = 0;  // of the host
};

enum class RequestEnd : std::uint8_t { stop, length, abort, error };

// A request that has ended, seconds by phase.
struct RequestSample {
  RequestEnd end = RequestEnd::stop;
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int generation_tokens = 0;
  int max_generation_tokens = 0;  // the largest of its choices'
  int max_tokens = 0;             // asked for
  int n = 1;
  double end_to_end = 0;
  double queue = 0;
  double prefill = 0;
  double decode = 0;
};

struct HttpSample {
  std::string_view handler, method;
  int status = 0;
  double seconds = 0;
  std::size_t request_bytes = 0;   // of the body
  std::size_t response_bytes = 0;  // likewise, where its length was declared; of streams 0
};

// Why a request was not taken.
enum class Rejection : std::uint8_t { queue_full, no_engine };

class Metrics {
 public:
  struct Options {
    std::string model_name;
    std::string version;
    bool compat = false;  // also the retired and mistaken names that old tooling asks for
  };
  explicit Metrics(Options options);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Once per engine, before any sample of any engine. `cache_config` are the labels of
  // vllm:cache_config_info beside engine and model_name.
  void add_engine(EngineId engine, int max_model_len,
                  const std::map<std::string, std::string>& cache_config);

  // Once per engine.
  void add_memory(EngineId engine, const std::vector<MemorySample>& uses);

  void observe_step(EngineId engine, const EngineStats& stats);
  void observe_up(EngineId engine, bool is_up);  // also before it was added
  // Of the stats how many requests wait: those that wait for an engine's return come and go without
  // a step.
  void observe_waiting(EngineId engine, const EngineStats& stats);
  struct PromptTokens {
    int all = 0;
    int cached = 0;    // of all
    int external = 0;  // of the cached ones: from another engine, or from behind the cache
  };
  void prompt_done(EngineId engine, const PromptTokens& tokens, double to_first_token);
  void observe_token_gap(EngineId engine, double seconds);
  void request_done(EngineId engine, const RequestSample& sample);
  void request_rejected(Rejection why);

  // Of every HTTP reply but those of probes and scrapes. Handlers and methods are few.
  void observe_http(const HttpSample& sample);
  void connection_opened();
  void connection_closed();

  std::string render() const;  // Prometheus text format 0.0.4

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
