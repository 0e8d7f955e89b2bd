#pragma once
// Timed prompts and generation through an engine that is driven by hand.

#include <cstdint>
#include <string>

#include "engine/core/engine_core.h"

namespace quire {

// Prompts of `prompt` tokens until each has its first token, or its vector; or, with `generate`, that many tokens
// more of each of `batch` requests that run together, after prompts of `depth` tokens.
struct BenchCase {
  int prompt = 0;
  int generate = 0;
  int batch = 1;
  int depth = 0;

  std::string name() const;  // "pp512", "tg128 x8 @ 8192"
  std::int64_t tokens() const { return std::int64_t{batch} * (generate > 0 ? generate : prompt); }
  int longest() const;  // tokens of a request
};

class BenchRun {
 public:
  // Throws Failure where the engine cannot start.
  explicit BenchRun(const EngineConfig& config);

  // Seconds that the case takes; its tokens are others each time.
  double seconds(const BenchCase& what);

  double load_seconds() const { return load_seconds_; }  // until the engine is ready
  const EngineCore& engine() const { return engine_; }

 private:
  void add(const BenchCase& what, int max_tokens);
  // Steps until every request has this many tokens, or is over.
  void run_until(int tokens);
  void take(const StepOutput& output);

  double begun_;
  EngineCore engine_;
  double load_seconds_;
  std::uint64_t next_id_ = 1;
  std::uint64_t random_ = 1;
  std::vector<RequestId> ids_;
  std::unordered_map<RequestId, int> tokens_;  // that the running have
};

}  // namespace quire
