#include "engine/config.h"

#include <catch2/catch.hpp>

namespace quire {
namespace {

EngineConfig valid() {
  EngineConfig config;
  config.model.path = "models/quire-tiny";
  return config;
}

struct Refusal {
  const char* field;
  void (*change)(EngineConfig&);
};

}  // namespace

TEST_CASE("The defaults are valid") { CHECK(validate(valid()).has_value()); }

TEST_CASE("Values out of range and flags without effect are refused by name") {
  const Refusal refusals[] = {
      {"ModelOptions::path", [](EngineConfig& c) { c.model.path.clear(); }},
      {"ModelOptions::max_model_len", [](EngineConfig& c) { c.model.max_model_len = -2; }},
      {"CacheConfig::block_size", [](EngineConfig& c) { c.cache.block_size = -1; }},
      {"CacheConfig::num_gpu_blocks_override",
       [](EngineConfig& c) { c.cache.num_gpu_blocks_override = 1; }},
      {"CacheConfig::gpu_memory_utilization",
       [](EngineConfig& c) { c.cache.gpu_memory_utilization = 1.5; }},
      {"CacheConfig::gpu_memory_utilization",
       [](EngineConfig& c) {
         c.cache.gpu_memory_utilization = 0.5;
         c.cache.kv_cache_memory_bytes = 1 << 30;
       }},
      {"CacheConfig::mamba_block_size",
       [](EngineConfig& c) {
         c.cache.mamba_block_size = 64;
         c.cache.enable_prefix_caching = false;
       }},
      {"CacheConfig::mamba_cache_mode",
       [](EngineConfig& c) {
         c.cache.mamba_cache_mode = StateCacheMode::align;
         c.cache.enable_prefix_caching = false;
       }},
      {"CacheConfig::prefix_hash",
       [](EngineConfig& c) {
         c.cache.prefix_hash = PrefixHash::sha256_cbor;  // and no events
       }},
      {"KvEventsConfig::endpoint",
       [](EngineConfig& c) {
         c.kv_events.endpoint = "tcp://*:5557";
         c.cache.enable_prefix_caching = false;
       }},
      {"KvEventsConfig::replay_endpoint",
       [](EngineConfig& c) { c.kv_events.replay_endpoint = "tcp://*:5558"; }},
      {"KvEventsConfig::endpoint",
       [](EngineConfig& c) { c.kv_events.endpoint = "tcp://*:99999"; }},
      {"KvEventsConfig::endpoint", [](EngineConfig& c) { c.kv_events.endpoint = "tcp://host"; }},
      {"KvEventsConfig::replay_endpoint",
       [](EngineConfig& c) {
         c.kv_events.endpoint = "tcp://*:5557";
         c.kv_events.replay_endpoint = "tcp://*:65535";
         c.parallel.data_parallel_size = 2;  // the second one's is 65536
       }},
      {"KvEventsConfig::hash_seed", [](EngineConfig& c) { c.kv_events.hash_seed = "0"; }},
      {"KvEventsConfig::int_hashes=false", [](EngineConfig& c) { c.kv_events.int_hashes = false; }},
      {"KvEventsConfig::high_water_mark", [](EngineConfig& c) { c.kv_events.high_water_mark = 5; }},
      {"KvEventsConfig::buffer_steps",
       [](EngineConfig& c) {
         c.kv_events.endpoint = "tcp://*:5557";
         c.kv_events.buffer_steps = 5;  // nobody can ask for them
       }},
      {"SchedulerConfig::async_scheduling",
       [](EngineConfig& c) {
         c.device = DeviceKind::cpu;
         c.scheduler.async_scheduling = true;
       }},
      {"ParallelConfig::data_parallel_size",
       [](EngineConfig& c) { c.parallel.data_parallel_size = 0; }},
      {"ParallelConfig::data_parallel_size",
       [](EngineConfig& c) { c.parallel.data_parallel_size = 65; }},
      {"SchedulerConfig::max_num_seqs", [](EngineConfig& c) { c.scheduler.max_num_seqs = 0; }},
      {"SchedulerConfig::max_num_batched_tokens",
       [](EngineConfig& c) { c.scheduler.max_num_batched_tokens = 8; }},
      {"SchedulerConfig::long_prefill_token_threshold",
       [](EngineConfig& c) {
         c.scheduler.long_prefill_token_threshold = 64;
         c.scheduler.enable_chunked_prefill = false;
       }},
      {"SchedulerConfig::long_prefill_token_threshold",
       [](EngineConfig& c) { c.scheduler.long_prefill_token_threshold = 4096; }},
      {"SchedulerConfig::target_itl_ms", [](EngineConfig& c) { c.scheduler.target_itl_ms = -1; }},
      {"SchedulerConfig::target_itl_ms",
       [](EngineConfig& c) {
         c.scheduler.target_itl_ms = 50;
         c.scheduler.enable_chunked_prefill = false;
       }},
      {"SchedulerConfig::target_itl_ms",
       [](EngineConfig& c) {
         c.scheduler.target_itl_ms = 50;
         c.device = DeviceKind::mock;
       }},
      {"SchedulerConfig::target_itl_ms",
       [](EngineConfig& c) {
         c.scheduler.target_itl_ms = 50;
         c.kv_transfer.role = KvRole::prefill;
         c.kv_transfer.listen = "127.0.0.1:5600";
       }},
      {"KvTransferConfig::listen",
       [](EngineConfig& c) {
         c.kv_transfer.role = KvRole::decode;
         c.kv_transfer.plane = KvPlane::mooncake;
         c.kv_transfer.peers = {{"10.0.0.7:8998"}};
       }},
      {"KvTransferConfig::peers",
       [](EngineConfig& c) {
         c.kv_transfer.role = KvRole::decode;
         c.kv_transfer.plane = KvPlane::mooncake;
         c.kv_transfer.listen = "10.0.0.8:8998";
         c.kv_transfer.peers = {{"unix:/run/kv.sock"}};
       }},
      {"KvTransferConfig::peer_block_size",
       [](EngineConfig& c) {
         c.kv_transfer.role = KvRole::prefill;
         c.kv_transfer.plane = KvPlane::mooncake;
         c.kv_transfer.listen = "10.0.0.8:8998";
         c.kv_transfer.peer_block_size = 16;
       }},
      {"NixlConfig::pushes",
       [](EngineConfig& c) {
         c.kv_transfer.role = KvRole::prefill;
         c.kv_transfer.listen = "10.0.0.8:5600";
         c.kv_transfer.nixl.pushes = true;
       }},
      {"KvTransferConfig::listen",
       [](EngineConfig& c) {
         c.kv_transfer.role = KvRole::decode;
         c.kv_transfer.plane = KvPlane::nixl;
         c.kv_transfer.peers = {{"10.0.0.7:5600"}};
         c.kv_transfer.nixl.pushes = true;
       }},
      {"KvTransferConfig::peers",
       [](EngineConfig& c) {
         c.kv_transfer.role = KvRole::prefill;
         c.kv_transfer.plane = KvPlane::nixl;
         c.kv_transfer.listen = "10.0.0.8:5600";
         c.kv_transfer.nixl.pushes = true;
       }},
      {"KvTransferConfig::peer_block_size",
       [](EngineConfig& c) {
         c.kv_transfer.role = KvRole::prefill;
         c.kv_transfer.plane = KvPlane::nixl;
         c.kv_transfer.listen = "10.0.0.8:5600";
         c.kv_transfer.peers = {{"10.0.0.7:5600"}};
         c.kv_transfer.nixl.pushes = true;
         c.kv_transfer.peer_block_size = 1 << 20;
       }},
      {"KvTransferConfig::peer_block_size",
       [](EngineConfig& c) {
         c.kv_transfer.role = KvRole::decode;
         c.kv_transfer.peers = {{"10.0.0.7:5600"}};
         c.kv_transfer.peer_block_size = 16;
       }},
      {"GraphConfig::capture_sizes",
       [](EngineConfig& c) {
         c.device = DeviceKind::cpu;
         c.graphs.capture_sizes = {1};
       }},
      {"GraphConfig::capture_sizes",
       [](EngineConfig& c) {
         c.graphs.enforce_eager = true;
         c.graphs.capture_sizes = {1};
       }},
      {"GraphConfig::capture_sizes",
       [](EngineConfig& c) {
         c.graphs.capture_sizes = {4, 2049};
       }},
      {"GraphConfig::max_capture_size", [](EngineConfig& c) { c.graphs.max_capture_size = -1; }},
      {"GraphConfig::max_capture_size",
       [](EngineConfig& c) {
         c.device = DeviceKind::cuda;
         c.graphs.capture_sizes = {1};
         c.graphs.max_capture_size = 4;
       }},
      {"ParallelConfig::tensor_parallel_size",
       [](EngineConfig& c) { c.parallel.tensor_parallel_size = 0; }},
      {"ParallelConfig::tensor_parallel_size",
       [](EngineConfig& c) { c.parallel.tensor_parallel_size = 65; }},
      {"KvOffloadConfig::host_bytes", [](EngineConfig& c) { c.kv_offload.host_bytes = -1; }},
      {"KvOffloadConfig::path", [](EngineConfig& c) { c.kv_offload.path = "/tmp"; }},
      {"KvOffloadConfig::path_bytes",
       [](EngineConfig& c) {
         c.kv_offload.host_bytes = 1 << 20;
         c.kv_offload.path_bytes = 1 << 20;
       }},
      {"KvOffloadConfig::host_bytes",
       [](EngineConfig& c) {
         c.kv_offload.host_bytes = 1 << 20;
         c.cache.enable_prefix_caching = false;
       }},
      {"KvOffloadConfig::host_bytes",
       [](EngineConfig& c) {
         c.kv_offload.host_bytes = 1 << 20;
         c.device = DeviceKind::mock;
       }},
      {"EngineConfig::cpu_threads",
       [](EngineConfig& c) {
         c.device = DeviceKind::cuda;
         c.cpu_threads = 4;
       }},
  };
  for (const Refusal& refusal : refusals) {
    CAPTURE(refusal.field);
    EngineConfig config = valid();
    refusal.change(config);
    const Result<void> checked = validate(config);
    REQUIRE(checked.has_error());
    CHECK(checked.error().field == refusal.field);
    CHECK(checked.error().detail.find(refusal.field) == 0);
  }
}

TEST_CASE("a CPU may be asked for what it does anyway", "[engine][config]") {
  EngineConfig config;
  config.device = DeviceKind::cpu;
  config.model.path = "m";
  config.graphs.enforce_eager = true;
  config.scheduler.async_scheduling = false;
  CHECK(validate(config).has_value());
}

}  // namespace quire
