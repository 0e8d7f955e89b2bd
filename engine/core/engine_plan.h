#pragma once
// What an engine's start-up allocates, all of it, by purpose: `quire plan` prints it, EngineCore
// executes it and compares.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/ops_traits.h"
#include "base/result.h"
#include "engine/kv_plan/model_plan.h"
#include "engine/kv_transfer/content/rank_rows.h"
#include "engine/kv_transfer/transfer_buffers.h"
#include "engine/runner/graph_cache.h"
#include "engine/runner/model_runner.h"
#include "model/config.h"
#include "model/draft_registry.h"
#include "model/pooling_config.h"

namespace quire {

struct PlannedDevice {
  DeviceKind kind = DeviceKind::cpu;  // not automatic
  bool is_host_memory = true;
  std::int64_t total_bytes = 0;
  std::int64_t available_bytes = 0;  // for all that is planned; 0: not known
  const OpsTraits& ops;
  int rank = 0;  // of those that divide the model
};

// A device as it is before start-up; what is on the ledger is part of the plan.
PlannedDevice planned_device(DeviceKind kind, Device& device, const OpsTraits& ops);

struct EnginePlan {
  std::int64_t device_bytes = 0;    // there are; of a CPU, this engine's part, or this rank's
  std::int64_t allowed_bytes = 0;   // of them, for all that follows
  std::int64_t mapped_bytes = 0;    // weights that stay in mapped files; part of no use
  std::int64_t kv_cache_bytes = 0;  // allowed
  std::int64_t loaded_len = 0;      // tokens that the model's tables reach
  MemoryUses uses;                  // without a cache where it is refused; graphs: at most
  CaptureSizes graphs;
  // What they keep, as the measured models say: the target's, then the draft's.
  std::vector<LayerKvSpec> layers;
  int num_draft_layers = 0;  // of those
  // The same layers of the whole model, where ranks share it and it is transferred.
  std::vector<LayerKvSpec> whole_layers;
  Result<ModelPlan> model = Error{};
};

// Plans one rank by going through start-up on a device that has no memory. Throws Failure for files
// that lie, lack or contradict.
EnginePlan plan_engine(const EngineConfig& config, const ModelConfig& model_config,
                       const PlannedDevice& device, const PoolingConfig& pooling = {});

// Threads of one engine on a CPU of this many cores, which the engines of the process share.
int threads_of_engine(const EngineConfig& config, int cores);

// Refuses drafts, naming the field, where there is no room or the model's states cannot go back.
Result<void> check_drafts(const EngineConfig& config, const ModelMemory& memory,
                          const std::string& architecture);

// A draft model is whole, and rank 0's alone, however the target is divided.
struct LoadedDraft {
  std::unique_ptr<Model> ends;  // a divided target's embedding and head, whole
  std::unique_ptr<DraftModel> model;
};
// Null without one in the configuration. `target` is loaded, or measured, with the same options.
LoadedDraft make_draft(const EngineConfig& config, const ModelConfig& model_config, Model& target,
                       Device& device, const OpsTraits& ops, LoadOptions options);

RunnerOptions runner_options(const EngineConfig& config, const KvPlan& plan,
                             const CaptureSizes& graphs, const PoolingConfig& pooling = {});

// Bytes of one block on all ranks together.
std::size_t offload_slot_bytes(const EngineConfig& config, const KvPlan& plan);

// Allocates the memory of transfers; none where nothing is transferred. `layers`: of the whole
// model. Throws Failure where these layers cannot be transferred.
TransferBuffers transfer_buffers(const EngineConfig& config, std::span<const LayerKvSpec> layers,
                                 std::int64_t max_model_len, Device& device);

// Notes about prompts that are computed twice, because their content does not fit the buffers.
std::vector<std::string> notes_of_transfer(const KvTransferConfig& config,
                                           std::span<const LayerKvSpec> layers, const KvPlan& plan);

// The layer as the plan changed it, with the heads and states of the whole model's.
LayerKvSpec whole_layer(const LayerKvSpec& whole, const LayerCache& planned);
// What a rank has of the rows of each.
std::vector<RankRow> rank_rows(const EnginePlan& plan, std::span<const LayerCache> layers,
                               const Collectives& ranks);

// Throws Failure, naming purpose, planned and allocated, where start-up allocated anything else.
// Graphs are the driver's: they may take less; more is logged.
void check_allocated(const MemoryUses& planned, const MemoryUses& allocated);

}  // namespace quire
