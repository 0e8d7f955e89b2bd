#pragma once
// What a rank other than 0 does in a step: rank 0's arrays → its share of the forward pass and of
// the logits. Nothing is drawn here. One thread.

#include <array>
#include <memory>
#include <span>

#include "backend/workspace.h"
#include "engine/runner/graph_cache.h"
#include "engine/runner/input_batch.h"
#include "engine/runner/kv_memory.h"
#include "engine/runner/model_runner.h"
#include "model/model.h"

namespace quire {

class RankRunner {
 public:
  // With RunnerOptions::collectives, unless sizes are only measured.
  RankRunner(Device& device, Ops& ops, Model& model, KvMemory& memory, const KvPlan& plan,
             const RunnerOptions& options);

  void step(const StepShape& shape, std::span<const BlockId> zero_blocks,
            std::span<const std::byte> pack);
  // The same from the graph that capture() has made of this shape, with the logits unless it is
  // mixed.
  void replay(const StepShape& shape, std::span<const BlockId> zero_blocks,
              std::span<const std::byte> pack);
  void capture(const StepShape& shape, std::span<const std::byte> pack);
  // Of rows [first, end) of the latest step's hidden states; of those that it samples.
  void logits(int first, int end);
  void sampled_logits();
  // Rank 0's, for a step that is queued before they are known.
  void take_draws();
  void take_drafts();

 private:
  TensorView hidden(std::int64_t rows) const;
  ForwardContext context(int max_seq_len);
  void follow(const StepShape& shape, std::span<const BlockId> zero_blocks,
              std::span<const std::byte> pack);
  void compute_graph(const GraphShape& graph);

  Device& device_;
  Ops& ops_;
  Model& model_;
  KvMemory& memory_;
  const RunnerOptions options_;
  InputBatch batch_;
  Workspace workspace_;
  Buffer hidden_;          // [max_num_batched_tokens, hidden_size]
  Buffer sampled_hidden_;  // [max_samples, hidden_size]
  const StepInputs* inputs_ = nullptr;  // of the latest step
  GraphCache graphs_;
  // Of a step's upload: the host fills the pack again only after the step before the last has gone.
  std::array<std::unique_ptr<Event>, 2> uploaded_;
  int turn_ = 0;
};

}  // namespace quire
