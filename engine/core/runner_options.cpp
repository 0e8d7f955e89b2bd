// What of a configuration and its plan the runner and transfers are made with.

#include <algorithm>

#include "engine/core/engine_plan.h"
#include "engine/kv_transfer/transfer_reach.h"

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
          .mixed_graph_sizes = graphs.mixed_sizes,
          .keeps_faster_mixed = graphs.keeps_faster,
          .captures_drafting = graphs.drafting,
          .captures_all_drafting = graphs.all_drafting,
          .pooling = pooling.pools() ? std::optional(pooling.type) : std::nullopt,
          .same_bits = config.deterministic,
          .draws_drafts = config.speculative.draft_sampling == DraftSampling::probabilistic};
}

LayerKvSpec whole_layer(const LayerKvSpec& whole, const LayerCache& planned) {
  LayerKvSpec layer = whole;
  layer.spec = planned.spec;
  layer.spec.num_kv_heads = whole.spec.num_kv_heads;
  layer.spec.states = whole.spec.states;
  return layer;
}

std::vector<RankRow> rank_rows(const EnginePlan& plan, std::span<const LayerCache> layers,
                               const Collectives& ranks) {
  std::vector<RankRow> rows;
  for (std::size_t i = 0; i < layers.size(); ++i)
    rows.push_back(rank_row(whole_layer(plan.whole_layers[i], layers[i]).spec, layers[i].spec,
                            {.rank = ranks.rank(), .size = ranks.size()}));
  return rows;
}

std::size_t offload_slot_bytes(const EngineConfig& config, const KvPlan& plan) {
  return plan.workers.front().pool_bytes_per_block *
         static_cast<std::size_t>(config.parallel.tensor_parallel_size);
}

TransferBuffers transfer_buffers(const EngineConfig& config, std::span<const LayerKvSpec> layers,
                                 std::int64_t max_model_len, Device& device) {
  const KvTransferConfig& transfer = config.kv_transfer;
  if (transfer.role == KvRole::none) return TransferBuffers();
  const std::int64_t longest = longest_prefill_bytes(layers, max_model_len);
  return make_transfer_buffers(transfer, transfer_sizes(transfer, longest), device);
}

std::vector<std::string> notes_of_transfer(const KvTransferConfig& config,
                                           std::span<const LayerKvSpec> layers,
                                           const KvPlan& plan) {
  if (config.role == KvRole::none) return {};
  const std::vector<KvGroup>& groups = plan.groups();
  KvGeometry geometry;
  std::vector<int> group_of_layer;
  for (const LayerKvSpec& layer : layers) {
    const auto group = std::ranges::find_if(groups, [&](const KvGroup& one) {
      return std::ranges::find(one.layers, layer.layer) != one.layers.end();
    });
    group_of_layer.push_back(static_cast<int>(group - groups.begin()));
    geometry.layers.push_back(layer_geometry(layer, group->block_size));
  }
  const auto sizes = transfer_sizes(config, longest_prefill_bytes(layers, plan.max_model_len));
  return transfer_notes(config, geometry, group_of_layer, sizes,
                        static_cast<int>(plan.max_model_len));
}

}  // namespace quire
