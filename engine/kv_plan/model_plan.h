#pragma once
// From a model's layers and an engine's configuration to the plan: the one function that both
// `quire plan` and the engine's start-up call, so that the one prints what the other allocates.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/kv_plan/plan.h"

namespace quire {

// What a device's kernels read.
struct DeviceKernels {
  KernelSizes attention;
  KernelSizes latent;  // of MLA
  std::vector<DType> cache_dtypes;
};

// device is not automatic.
const DeviceKernels& device_kernels(DeviceKind device);

struct ModelMemory {
  std::vector<LayerKvSpec> layers;  // Model::kv_specs() of the measured model, block_size 1
  std::int64_t model_max_len = 0;   // tokens, of config.json
  DType dtype = DType::bf16;        // of hidden states, after --dtype
  std::optional<DType> published_cache_dtype = {};  // what the checkpoint is calibrated for
  std::optional<int> mamba_chunk_size = {};         // tokens, of the model's scan
};

// Before anything of that length is made: whether the model reaches it.
Result<void> check_max_model_len(const EngineConfig& config, std::int64_t model_max_len);

// The options that Model::kv_specs() takes under this configuration; dtypes as ModelMemory's.
KvSpecOptions kv_spec_options(const EngineConfig& config, DType model_dtype,
                              std::optional<DType> published_cache_dtype = {});

struct DeviceBudget {
  std::int64_t total_bytes = 0;    // of the device
  std::int64_t other_bytes = 0;    // of this rank: weights, activations, all but the cache
  std::int64_t request_bytes = 0;  // about what the longest request caches; 0: not known
};

// DeviceBudget::request_bytes, before blocks are sized.
std::int64_t longest_request_bytes(const EngineConfig& config, const ModelMemory& model);

// What the engine may use of the device, all in all; where kv_cache_budget() is no share of it:
// all.
std::int64_t allowed_bytes(const EngineConfig& config, DeviceKind device, std::int64_t total_bytes);

// Bytes for the KV cache; may be negative. On the CPU the default is a fixed size, not a share.
std::int64_t kv_cache_budget(const EngineConfig& config, DeviceKind device,
                             const DeviceBudget& budget);

// One place at which a prefix can be gone on from: a block in each group of recurrent states.
struct StateCheckpoint {
  int num_blocks = 0;
  std::int64_t bytes = 0;
  std::int64_t num_in_pool = 0;         // if nothing else is in it
  std::int64_t num_beside_request = 0;  // of max_model_len
};

struct ModelPlan {
  KvPlan kv;
  StateCacheMode state_cache_mode = StateCacheMode::none;
  DType cache_dtype = DType::bf16;
  double state_padding_percent = 0;                // of the state's bytes, lost to equal pages
  std::optional<StateCheckpoint> checkpoint = {};  // where states are kept for later requests
  std::vector<std::string> notes = {};  // where a size is not the one asked for, or helps nobody
};

// A plan's groups and longest context before it is known how many blocks there are: the largest
// that the tables of running requests can get.
Result<KvPlan> plan_without_blocks(const EngineConfig& config, const ModelMemory& model,
                                   DeviceKind device);
Result<ModelPlan> make_model_plan(const EngineConfig& config, const ModelMemory& model,
                                  DeviceKind device, std::int64_t available_bytes);

}  // namespace quire
