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
  const char* flag;
  void (*change)(EngineConfig&);
};

}  // namespace

TEST_CASE("The defaults are valid") { CHECK(validate(valid()).has_value()); }

TEST_CASE("Values out of range and flags without effect are refused by name") {
  const Refusal refusals[] = {
      {"MODEL", [](EngineConfig& c) { c.model.path.clear(); }},
      {"--max-model-len", [](EngineConfig& c) { c.model.max_model_len = -2; }},
      {"--block-size", [](EngineConfig& c) { c.cache.block_size = -1; }},
      {"--num-gpu-blocks-override", [](EngineConfig& c) { c.cache.num_gpu_blocks_override = 1; }},
      {"--gpu-memory-utilization", [](EngineConfig& c) { c.cache.gpu_memory_utilization = 1.5; }},
      {"--gpu-memory-utilization",
       [](EngineConfig& c) {
         c.cache.gpu_memory_utilization = 0.5;
         c.cache.kv_cache_memory_bytes = 1 << 30;
       }},
      {"--mamba-block-size",
       [](EngineConfig& c) {
         c.cache.mamba_block_size = 64;
         c.cache.enable_prefix_caching = false;
       }},
      {"--mamba-cache-mode",
       [](EngineConfig& c) {
         c.cache.mamba_cache_mode = StateCacheMode::align;
         c.cache.enable_prefix_caching = false;
       }},
      {"--prefix-caching-hash-algo",
       [](EngineConfig& c) {
         c.cache.prefix_hash = PrefixHash::sha256_cbor;  // and no events
       }},
      {"--kv-events-endpoint",
       [](EngineConfig& c) {
         c.kv_events.endpoint = "tcp://*:5557";
         c.cache.enable_prefix_caching = false;
       }},
      {"--kv-events-replay-endpoint",
       [](EngineConfig& c) { c.kv_events.replay_endpoint = "tcp://*:5558"; }},
      {"--kv-events-hash-seed", [](EngineConfig& c) { c.kv_events.hash_seed = "0"; }},
      {"--kv-events-byte-hashes", [](EngineConfig& c) { c.kv_events.int_hashes = false; }},
      {"--kv-events-hwm", [](EngineConfig& c) { c.kv_events.high_water_mark = 5; }},
      {"--kv-events-buffer-steps",
       [](EngineConfig& c) {
         c.kv_events.endpoint = "tcp://*:5557";
         c.kv_events.buffer_steps = 5;  // nobody can ask for them
       }},
      {"--async-scheduling",
       [](EngineConfig& c) {
         c.device = DeviceKind::cpu;
         c.scheduler.async_scheduling = true;
       }},
      {"--no-async-scheduling",
       [](EngineConfig& c) {
         c.device = DeviceKind::cpu;
         c.scheduler.async_scheduling = false;
       }},
      {"--data-parallel-size", [](EngineConfig& c) { c.parallel.data_parallel_size = 0; }},
      {"--data-parallel-size", [](EngineConfig& c) { c.parallel.data_parallel_size = 65; }},
      {"--max-num-seqs", [](EngineConfig& c) { c.scheduler.max_num_seqs = 0; }},
      {"--max-num-batched-tokens", [](EngineConfig& c) { c.scheduler.max_num_batched_tokens = 8; }},
      {"--long-prefill-token-threshold",
       [](EngineConfig& c) {
         c.scheduler.long_prefill_token_threshold = 64;
         c.scheduler.enable_chunked_prefill = false;
       }},
      {"--long-prefill-token-threshold",
       [](EngineConfig& c) { c.scheduler.long_prefill_token_threshold = 4096; }},
      {"--enforce-eager",
       [](EngineConfig& c) {
         c.device = DeviceKind::cpu;
         c.graphs.enforce_eager = true;
       }},
      {"--cudagraph-capture-sizes",
       [](EngineConfig& c) {
         c.device = DeviceKind::cpu;
         c.graphs.capture_sizes = {1};
       }},
      {"--cudagraph-capture-sizes",
       [](EngineConfig& c) {
         c.graphs.enforce_eager = true;
         c.graphs.capture_sizes = {1};
       }},
      {"--cudagraph-capture-sizes",
       [](EngineConfig& c) {
         c.graphs.capture_sizes = {4, 257};
       }},
      {"--tensor-parallel-size", [](EngineConfig& c) { c.parallel.tensor_parallel_size = 0; }},
      {"--tensor-parallel-size", [](EngineConfig& c) { c.parallel.tensor_parallel_size = 2; }},
      {"--cpu-threads",
       [](EngineConfig& c) {
         c.device = DeviceKind::cuda;
         c.cpu_threads = 4;
       }},
  };
  for (const Refusal& refusal : refusals) {
    CAPTURE(refusal.flag);
    EngineConfig config = valid();
    refusal.change(config);
    const Result<void> checked = validate(config);
    REQUIRE(checked.has_error());
    CHECK(checked.error().field == refusal.flag);
    CHECK(checked.error().detail.find(refusal.flag) == 0);
  }
}

}  // namespace quire
