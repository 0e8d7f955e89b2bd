#pragma once
// Golden cases as requests to an engine that is driven by hand.

#include <unordered_map>
#include <vector>

#include "app/check/golden.h"
#include "engine/core/engine_core.h"

namespace quire {

struct CaseResult {
  LogitDistance distance;          // over the prompt
  std::size_t greedy_matches = 0;  // until the first other token
};

class CheckRun {
 public:
  // Throws Failure where the engine cannot start or the golden is not this model's.
  CheckRun(const EngineConfig& config, const Golden& golden);

  // All cases, `batch` of them at a time.
  std::vector<CaseResult> run(int batch);
  DType dtype() const { return dtype_; }
  DType cache_dtype() const { return engine_.plan().cache_dtype; }

 private:
  struct Running {
    std::size_t index;
    std::vector<float> logits;  // [prompt, vocab]
    std::vector<TokenId> tokens;
  };

  void start(std::size_t index);
  void take(const StepOutput& output);
  void finish(Running& running);

  const Golden& golden_;
  DType dtype_;
  EngineCore engine_;
  std::unordered_map<RequestId, Running> running_;
  std::vector<CaseResult> results_;
};

}  // namespace quire
