#pragma once
// What an engine is told at start-up. Plain data: app/flags/engine_flags.h fills it from the
// command line, the plan (engine/kv_plan/model_plan.h) turns it into sizes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/result.h"
#include "model/kv_spec.h"
#include "model/load_format.h"
#include "model/pooling.h"

namespace quire {

enum class SchedulingPolicy : std::uint8_t { fcfs, priority };
// mock: no model at all; tokens come as mock_step_us says, to measure what is in front.
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda, mock };
// Inside the process blocks are found by a keyed 128-bit hash; KV events name them by sha256_cbor,
// which other processes can compute.
enum class PrefixHash : std::uint8_t { keyed, sha256_cbor };

// vLLM's --kv-events-config.
struct KvEventsConfig {
  std::string endpoint = {};         // ZeroMQ address; empty: no events
  std::string replay_endpoint = {};  // empty: no replay
  std::string topic = {};
  std::optional<int> buffer_steps = {};     // batches kept for replay; unset: 10,000
  std::optional<int> high_water_mark = {};  // unsent batches, 0: no limit; unset: 100,000
  bool int_hashes = true;                   // the low 64 bits of a hash instead of all bytes
  // Seeds the first block's hash; routers that hash prompts themselves need it too. Unset: random.
  std::optional<std::string> hash_seed = {};

  using Fields =
      FieldList<&KvEventsConfig::endpoint, &KvEventsConfig::replay_endpoint, &KvEventsConfig::topic,
                &KvEventsConfig::buffer_steps, &KvEventsConfig::high_water_mark,
                &KvEventsConfig::int_hashes, &KvEventsConfig::hash_seed>;
};

struct CacheConfig {
  int block_size = 0;  // tokens; 0: the backend's
  std::optional<std::int64_t> num_gpu_blocks_override;
  std::int64_t kv_cache_memory_bytes = 0;  // per device; 0: gpu_memory_utilization decides
  // Share of the device's memory; unset: kDefaultUtilization.
  std::optional<double> gpu_memory_utilization;
  std::optional<DType> cache_dtype;  // unset: the model's
  bool enable_prefix_caching = true;
  PrefixHash prefix_hash = PrefixHash::keyed;
  std::optional<int> hash_block_size;  // tokens; unset: what all groups divide by
  std::optional<StateCacheMode> mamba_cache_mode;
  std::optional<int> mamba_block_size;         // tokens
  std::optional<DType> mamba_cache_dtype;      // convolution states
  std::optional<DType> mamba_ssm_cache_dtype;  // recurrent states
  bool hybrid_manager = true;                  // false: every group keeps every token

  using Fields = FieldList<&CacheConfig::block_size, &CacheConfig::num_gpu_blocks_override,
                           &CacheConfig::kv_cache_memory_bytes,
                           &CacheConfig::gpu_memory_utilization, &CacheConfig::cache_dtype,
                           &CacheConfig::enable_prefix_caching, &CacheConfig::prefix_hash,
                           &CacheConfig::hash_block_size, &CacheConfig::mamba_cache_mode,
                           &CacheConfig::mamba_block_size, &CacheConfig::mamba_cache_dtype,
                           &CacheConfig::mamba_ssm_cache_dtype, &CacheConfig::hybrid_manager>;
};

inline constexpr double kDefaultUtilization = 0.9;

struct SchedulerConfig {
  int max_num_seqs = 256;
  int max_num_batched_tokens = 2048;  // per step
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  bool enable_chunked_prefill = true;
  int long_prefill_token_threshold = 0;    // 0: off
  bool scheduler_reserve_full_isl = true;  // admit a prompt only if all of it fits
  // Plan step n+1 while n computes; unset: where there is a device to plan beside.
  std::optional<bool> async_scheduling;
  int target_itl_ms = 0;  // most milliseconds from token to token, by cutting prompts; 0: no bound
  std::int64_t max_num_queued_reqs = 1024;  // waiting; beyond: 503
  std::int64_t max_num_queued_tokens = 0;   // 0: no limit

  using Fields =
      FieldList<&SchedulerConfig::max_num_seqs, &SchedulerConfig::max_num_batched_tokens,
                &SchedulerConfig::policy, &SchedulerConfig::enable_chunked_prefill,
                &SchedulerConfig::long_prefill_token_threshold,
                &SchedulerConfig::scheduler_reserve_full_isl, &SchedulerConfig::async_scheduling,
                &SchedulerConfig::max_num_queued_reqs, &SchedulerConfig::max_num_queued_tokens,
                &SchedulerConfig::target_itl_ms>;
};

// Which model and how; model/config.h's ModelConfig is what its config.json says.
struct ModelOptions {
  std::string path;
  std::string served_name;         // empty: the path's last part
  std::optional<DType> dtype;      // unset: config.json's
  std::string quantization;        // must be config.json's quant_method; empty: whatever it is
  std::int64_t max_model_len = 0;  // 0: config.json's; kAutoFit: what memory holds
  LoadFormat load_format = LoadFormat::safetensors;
  std::uint64_t seed = 0;
  PoolingOptions pooling;

  using Fields = FieldList<&ModelOptions::path, &ModelOptions::served_name, &ModelOptions::dtype,
                           &ModelOptions::max_model_len, &ModelOptions::load_format,
                           &ModelOptions::seed, &ModelOptions::quantization, &ModelOptions::pooling>;
};

inline constexpr std::int64_t kAutoFit = -1;

// Steps recorded ahead, so that the host queues one graph instead of each launch.
struct GraphConfig {
  bool enforce_eager = false;  // none
  bool only_decode = false;    // none of steps with prompts
  // Tokens of a step: of a decode step as many requests, up to SchedulerConfig::max_num_seqs. Empty:
  // those of engine/capture_sizes.h.
  std::vector<int> capture_sizes = {};
  int max_capture_size = 0;  // of the latter; 0: none

  using Fields = FieldList<&GraphConfig::enforce_eager, &GraphConfig::capture_sizes,
                           &GraphConfig::only_decode, &GraphConfig::max_capture_size>;
};

// eagle, eagle3: a draft model beside the target; mtp: a module inside the target's checkpoint.
enum class DraftMethod : std::uint8_t { none, ngram, eagle, eagle3, mtp };

// How a draft model's token is chosen. greedy: its best one; it holds while it is what the request
// draws. probabilistic: drawn from the draft's distribution, kept or replaced by rejection sampling.
enum class DraftSampling : std::uint8_t { greedy, probabilistic };

// vLLM's --speculative-config: tokens that are guessed and verified together.
struct SpeculativeConfig {
  DraftMethod method = DraftMethod::none;
  int num_speculative_tokens = 0;     // per request and step, at most
  std::optional<bool> adaptive = {};  // fewer where more do not pay; unset: but if deterministic
  int disable_by_batch_size = 0;      // none while more requests run; 0: no limit
  DraftSampling draft_sampling = DraftSampling::greedy;
  int prompt_lookup_min = 0;       // tokens; ngram
  int prompt_lookup_max = 0;
  std::string model = {};  // folder of the draft model; eagle, eagle3

  // A model proposes, with keys and values of its own.
  bool uses_draft_model() const { return method > DraftMethod::ngram; }

  using Fields = FieldList<&SpeculativeConfig::method, &SpeculativeConfig::num_speculative_tokens,
                           &SpeculativeConfig::prompt_lookup_min,
                           &SpeculativeConfig::prompt_lookup_max, &SpeculativeConfig::model,
                           &SpeculativeConfig::adaptive, &SpeculativeConfig::disable_by_batch_size,
                           &SpeculativeConfig::draft_sampling>;
};

// What an engine does for others' requests: prefills and keeps for fetching, fetches and decodes,
// or each as a request asks.
enum class KvRole : std::uint8_t { none, prefill, decode, both };
// How bytes travel. local: Quire's own protocol over TCP or Unix sockets. nixl: NVIDIA's library, as
// vLLM's NIXL connector uses it. mooncake: as its MooncakeConnector, over Mooncake's TCP transport.
enum class KvPlane : std::uint8_t { local, nixl, mooncake };
// What happens to a request whose keys and values could not be fetched.
enum class KvLoadFailurePolicy : std::uint8_t { recompute, fail };

// Where keys and values may be fetched from: host:port, host (any port) or unix:path.
struct KvPeer {
  std::string address = {};

  friend bool operator==(const KvPeer&, const KvPeer&) = default;
  using Fields = FieldList<&KvPeer::address>;
};

// Settings of the plane nixl: the library, and what vLLM servers on the other side were started
// with, of which they compare a hash before anything else (engine/kv_nixl/profile.h).
struct NixlConfig {
  std::string library = {};         // libnixl_capi.so; empty: as the loader finds it
  std::string profile = {};         // "vllm-0.33.0"; empty: the newest that is known
  std::string peer_model = {};      // their --model, letter by letter; empty: ModelOptions::path
  std::string peer_attention = {};  // their attention backend; empty: FLASH_ATTN
  std::optional<bool> compare_hash = {};  // unset: yes
  bool pushes = false;  // whoever prefills writes, instead of being read: NixlPushConnector

  using Fields = FieldList<&NixlConfig::library, &NixlConfig::profile, &NixlConfig::peer_model,
                           &NixlConfig::peer_attention, &NixlConfig::compare_hash,
                           &NixlConfig::pushes>;
};

// vLLM's --kv-transfer-config.
struct KvTransferConfig {
  KvRole role = KvRole::none;
  std::optional<KvPlane> plane = {};  // unset: local
  std::string listen = {};            // host:port or unix:path, of the engine's machine
  std::vector<KvPeer> peers = {};     // nobody else is asked
  std::optional<KvLoadFailurePolicy> load_failure_policy = {};  // unset: recompute
  std::int64_t buffer_bytes = 0;  // for each direction; 0: the plan chooses
  // That a prefill is kept without a sign of life; unset: 30, over mooncake 480.
  std::optional<int> lease_seconds = {};
  NixlConfig nixl = {};
  // Where whoever prefills writes: tokens of a block on the other side; 0: 16.
  int peer_block_size = 0;

  bool uses_mooncake() const { return plane == KvPlane::mooncake; }
  bool uses_nixl() const { return plane == KvPlane::nixl; }
  bool pushes_nixl() const { return uses_nixl() && nixl.pushes; }
  bool prefills() const { return role == KvRole::prefill || role == KvRole::both; }
  bool decodes() const { return role == KvRole::decode || role == KvRole::both; }

  using Fields =
      FieldList<&KvTransferConfig::role, &KvTransferConfig::plane, &KvTransferConfig::listen,
                &KvTransferConfig::peers, &KvTransferConfig::load_failure_policy,
                &KvTransferConfig::buffer_bytes, &KvTransferConfig::lease_seconds,
                &KvTransferConfig::nixl, &KvTransferConfig::peer_block_size>;
};

// Where blocks go that the cache gives up, so that a later request with their prefix copies them
// back instead of computing it. Of each engine.
struct KvOffloadConfig {
  std::int64_t host_bytes = 0;  // of the host's memory; 0: none
  std::string path = {};        // a folder for what the memory has no room for; empty: none
  std::int64_t path_bytes = 0;  // of that folder; 0: kPathShare times host_bytes

  static constexpr std::int64_t kPathShare = 8;
  bool is_on() const { return host_bytes > 0; }

  using Fields = FieldList<&KvOffloadConfig::host_bytes, &KvOffloadConfig::path,
                           &KvOffloadConfig::path_bytes>;
};

struct ParallelConfig {
  int tensor_parallel_size = 1;
  // Engines of this process. They share a CPU's memory and cores; GPUs they have one each.
  int data_parallel_size = 1;

  using Fields =
      FieldList<&ParallelConfig::tensor_parallel_size, &ParallelConfig::data_parallel_size>;
};

struct EngineConfig {
  ModelOptions model;
  CacheConfig cache;
  SchedulerConfig scheduler;
  ParallelConfig parallel;
  GraphConfig graphs;
  KvEventsConfig kv_events;
  SpeculativeConfig speculative;
  KvTransferConfig kv_transfer;
  KvOffloadConfig kv_offload;
  DeviceKind device = DeviceKind::automatic;
  int cpu_threads = 0;         // of each engine; 0: the cores, divided among the engines
  bool deterministic = false;  // same tokens whatever the batch
  int mock_step_us = 0;        // of DeviceKind::mock: one token for every request each time

  // A request's drafts are as many as pay. Their number never changes an answer, only the time.
  bool adapts_drafts() const { return speculative.adaptive.value_or(!deterministic); }

  using Fields = FieldList<&EngineConfig::model, &EngineConfig::cache, &EngineConfig::scheduler,
                           &EngineConfig::parallel, &EngineConfig::kv_events, &EngineConfig::device,
                           &EngineConfig::cpu_threads, &EngineConfig::deterministic,
                           &EngineConfig::graphs, &EngineConfig::speculative,
                           &EngineConfig::mock_step_us, &EngineConfig::kv_transfer,
                           &EngineConfig::kv_offload>;
};

// Refuses values out of range and settings without effect; the error names the field. What depends
// on the model is checked by the plan.
Result<void> validate(const EngineConfig& config);

}  // namespace quire
