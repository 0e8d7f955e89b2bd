#pragma once
// A whole engine on the GPU with random weights of some model's shape, step by step.

#include <memory>
#include <set>

#include "cuda/runtime/variants.h"
#include "engine/core/engine_core.h"
#include "tests/perf/timed_device.h"
#include "tests/perf/timed_ops.h"

namespace quire::perf {

struct ModelShape {
  const char* name;
  const char* architecture;
  const char* type;
  int layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
  bool tied;
  double goal;            // share of the read rate at batch 1
  bool compares = false;  // graphs with none, and kernels that begin early with those in turn
  bool many = false;      // streams as well

  // Of one decode step: every weight but the rows of the embedding that are not looked up.
  double weight_bytes() const {
    const double attention =
        double(hidden) * (heads + 2 * kv_heads) * head_dim + double(heads) * head_dim * hidden;
    return 2 * (layers * (attention + 3. * hidden * intermediate) + double(vocab) * hidden);
  }
  double cache_bytes(int context) const { return 4. * layers * kv_heads * head_dim * context; }
};

struct EngineWay {
  bool eager = false;        // no graphs
  bool only_decode = false;  // none of steps with prompts
  bool all_mixed = false;    // those that would not be kept, too
  cuda::Variants variants = {};
};

class PerfEngine {
 public:
  PerfEngine(const ModelShape& shape, bool tiny, const EngineWay& way = {});
  ~PerfEngine();

  TimedDevice& device() { return *device_; }
  TimedOps& ops() { return *ops_; }

  void add(int prompt_tokens, int output_tokens);
  // One step; the number of tokens that came out.
  int step();
  bool has_work() const { return core_.has_work(); }
  void finish() {
    while (has_work()) step();
  }
  // Requests, since the start, of which a token has come out.
  int begun() const { return static_cast<int>(begun_.size()); }
  // Of all tokens so far, in the order in which they came.
  std::uint64_t digest() const { return digest_; }

 private:
  EngineBackend backend();
  void note(RequestId id, TokenId token);

  class ModelFolder;
  const ModelShape& shape_;
  std::unique_ptr<ModelFolder> folder_;
  TimedDevice* device_ = nullptr;  // the core's, both
  TimedOps* ops_ = nullptr;
  EngineCore core_;
  std::uint64_t last_id_ = 0, digest_ = 14695981039346656037u;
  std::set<RequestId> begun_;
};

}  // namespace quire::perf
