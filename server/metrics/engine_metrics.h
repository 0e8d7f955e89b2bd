#pragma once
// What engines say about themselves → /metrics.

#include <atomic>
#include <map>
#include <string>

#include "engine/client/engine_group.h"
#include "server/metrics/metrics.h"

namespace quire {

// Labels of vllm:cache_config_info, in Python's spelling as vLLM's users match it; the sizes are
// the engine's own.
std::map<std::string, std::string> cache_config_labels(const EngineConfig& config,
                                                       const Ready& ready);

class EngineMetricsFeed {
 public:
  EngineMetricsFeed(EngineGroup& engines, Metrics& metrics);
  ~EngineMetricsFeed() { engines_.on_step({}); }
  // Once the group is ready; steps before that leave no trace.
  void publish(const EngineConfig& config);

 private:
  EngineGroup& engines_;
  Metrics& metrics_;
  std::atomic<bool> published_{false};
};

}  // namespace quire
