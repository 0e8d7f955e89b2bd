// What of a configuration and its plan the runner and transfers are made with.

#include "engine/core/engine_plan.h"

namespace quire {

RunnerOptions runner_options(const EngineConfig& config, const KvPlan& plan,
                             const CaptureSizes& graphs, const PoolingConfig& pooling) {
  return {.limits = {.max_num_seqs = config.scheduler.max_num_seqs,
                     .max_num_batched_tokens = config.scheduler.max_num_batched_tokens,
                     .max_model_len = static_cast<int>(plan.max_model_len),
                     .max_drafts = config.speculative.num_speculative_tokens},
          .seed = config.model.seed,
          .graph_sizes = graphs.sizes,
          .draft_graph_sizes = graphs.draft_sizes,
          .captures_drafting = graphs.drafting,
          .pooling = pooling.pools() ? std::optional(pooling.type) : std::nullopt,
          .draws_drafts = config.speculative.draft_sampling == DraftSampling::probabilistic};
}

TransferBuffers transfer_buffers(const EngineConfig& config, std::span<const LayerKvSpec> layers,
                                 std::int64_t max_model_len, Device& device) {
  const KvTransferConfig& transfer = config.kv_transfer;
  if (transfer.role == KvRole::none) return TransferBuffers();
  const std::int64_t longest = longest_prefill_bytes(layers, max_model_len);
  return make_transfer_buffers(transfer, longest, device);
}

}  // namespace quire
