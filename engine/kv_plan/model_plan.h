#pragma once
// From a model's layers and an engine's configuration to the plan, in steps that `quire plan` and
// the engine's start-up both take, so that the one prints what the other allocates:
//
//   check_max_model_len   before anything of that length is made
//   (the model is measured: its layers say what they store)
//   size_model            the flags against model and device, block sizes, groups
//   fit                   groups and memory → blocks
//
// All are pure functions.

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
  std::vector<LayerKvSpec> layers;    // Model::kv_specs() of the measured model, block_size 1
  std::int64_t model_max_len = 0;     // tokens that it reaches
  std::int64_t default_max_len = {};  // without --max-model-len; 0: model_max_len
  DType dtype = DType::bf16;          // of hidden states, after --dtype
  std::optional<DType> published_cache_dtype = {};  // what the checkpoint is calibrated for
  std::optional<int> mamba_chunk_size = {};         // tokens, of the model's scan
  int state_chunk = 1;                              // tokens, of the device's operators for it
};

// Whether the model reaches what --max-model-len asks for.
Result<void> check_max_model_len(const EngineConfig& config, std::int64_t model_max_len);
// The longest context to plan for; with auto-fit the plan lowers it.
std::int64_t longest_context(const EngineConfig& config, const ModelMemory& model);

// The options that Model::kv_specs() takes under this configuration; dtypes as ModelMemory's.
KvSpecOptions kv_spec_options(const EngineConfig& config, DType model_dtype,
                              std::optional<DType> published_cache_dtype = {});

// A model whose layers have block sizes and groups; no memory yet.
struct SizedModel {
  KvPlanInput input;
  std::vector<KvGroup> groups;
  bool has_states = false;
  int state_chunk = 1;
  StateCacheMode state_cache_mode = StateCacheMode::none;
  DType cache_dtype = DType::bf16;
  double state_padding_percent = 0;     // of the state's bytes, lost to equal pages
  std::vector<std::string> notes = {};  // where a size is not the one asked for

  // The plan as far as it is known without memory: the largest that the tables of running requests
  // can get.
  KvPlan without_blocks() const;
  // What one request of the longest context and the null block take.
  std::int64_t least_cache_bytes() const;
};

// Refuses flags that the model or the device cannot follow, by name.
Result<SizedModel> size_model(const EngineConfig& config, const ModelMemory& model,
                              DeviceKind device);

// Of one engine. Engines of one process share a CPU, and each has a GPU.
struct DeviceBudget {
  std::int64_t total_bytes = 0;    // of the device, or the engine's part of it
  std::int64_t other_bytes = 0;    // of this rank: weights, activations, all but the cache
  std::int64_t request_bytes = 0;  // about what the longest request caches; 0: not known
};

// Processes that share a CPU's memory and cores: engines, each with its ranks.
int num_sharers(const ParallelConfig& parallel);

// DeviceBudget::request_bytes, before blocks are sized.
std::int64_t longest_request_bytes(const EngineConfig& config, const ModelMemory& model);

// All of the device's memory that the engine may use; everything where kv_cache_budget() is not a
// share of it.
std::int64_t allowed_bytes(const EngineConfig& config, DeviceKind device, std::int64_t total_bytes);

// Bytes for the KV cache; may be negative. On the CPU the default is a fixed size, not a share.
std::int64_t kv_cache_budget(const EngineConfig& config, DeviceKind device,
                             const DeviceBudget& budget);

struct CacheMemory {
  std::int64_t available_bytes = 0;
  // What a flag could raise it to, so that no advice asks for more.
  std::int64_t most_bytes = std::int64_t{1} << 62;
};

// A place from which a prefix can be continued: a block in each group of recurrent states.
struct StateCheckpoint {
  int num_blocks = 0;
  std::int64_t bytes = 0;
  std::int64_t num_in_pool = 0;         // if nothing else is in it
  std::int64_t num_beside_request = 0;  // of max_model_len
};

struct ModelPlan {
  KvPlan kv;
  int state_chunk = 1;  // tokens: steps of a prompt end at its multiples
  StateCacheMode state_cache_mode = StateCacheMode::none;
  DType cache_dtype = DType::bf16;
  double state_padding_percent = 0;
  std::optional<StateCheckpoint> checkpoint = {};  // where states are kept for later requests
  std::vector<std::string> notes = {};  // where a size is not the one asked for, or helps nobody
};

Result<ModelPlan> fit(const EngineConfig& config, const SizedModel& model,
                      const CacheMemory& memory);

// size_model() and fit().
Result<ModelPlan> make_model_plan(const EngineConfig& config, const ModelMemory& model,
                                  DeviceKind device, const CacheMemory& memory);

}  // namespace quire
