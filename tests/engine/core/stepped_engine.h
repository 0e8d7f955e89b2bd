#pragma once

#include <algorithm>
#include <map>
#include <utility>

#include "engine/core/engine_core.h"
#include "tests/engine/core/live_engine.h"

namespace quire::test {

// An engine that the test steps by hand.
class SteppedEngine {
 public:
  explicit SteppedEngine(const EngineConfig& config = tiny_config(),
                         BackendFactory backend = cpu_backend)
      : core(config, EngineId{0}, backend(config), [](std::string_view, double) {}) {}

  RequestId add(AddRequest request) {
    const RequestId id{++last_id_};
    request.id = id;
    core.add(std::move(request));
    return id;
  }

  void step() {
    StepOutput output = core.step();
    for (const TokenOutput& one : output.tokens) outputs[one.id].token_ids.push_back(one.token);
    for (RequestOutput& one : output.requests) {
      const RequestId id = one.id;
      merge(outputs[id], std::move(one));
    }
    max_step_tokens = std::max(max_step_tokens, output.stats.step_tokens);
  }

  void run() {
    while (core.has_work()) step();
  }

  const RequestOutput& finish(AddRequest request) {
    const RequestId id = add(std::move(request));
    run();
    return outputs[id];
  }

  EngineCore core;
  std::map<RequestId, RequestOutput> outputs;
  int max_step_tokens = 0;

 private:
  std::uint64_t last_id_ = 0;
};

}  // namespace quire::test
