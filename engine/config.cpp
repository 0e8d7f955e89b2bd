#include "engine/config.h"

#include <fmt/format.h>

namespace quire {
namespace {

constexpr int kMostEngines = 64;

Error refuse(std::string flag, std::string why) {
  return {ErrorCode::invalid_argument, flag + " " + why, flag};
}

Error without_effect(std::string flag, std::string_view because) {
  return refuse(std::move(flag), fmt::format("has no effect {}; remove it", because));
}

Result<void> at_least(const char* flag, std::int64_t value, std::int64_t least) {
  if (value >= least) return {};
  return refuse(flag, fmt::format("must be at least {}, not {}", least, value));
}

Result<void> check_cache(const CacheConfig& cache) {
  if (cache.block_size < 0) return refuse("--block-size", "must be positive");
  if (const auto blocks = cache.num_gpu_blocks_override; blocks && *blocks < 2)
    return refuse("--num-gpu-blocks-override",
                  fmt::format("must be at least 2 (block 0 holds no tokens), not {}", *blocks));
  if (cache.kv_cache_memory_bytes < 0)
    return refuse("--kv-cache-memory-bytes", "must not be negative");
  if (const auto share = cache.gpu_memory_utilization; share && !(*share > 0 && *share <= 1))
    return refuse("--gpu-memory-utilization",
                  fmt::format("must be above 0 and at most 1, not {}", *share));
  if (cache.gpu_memory_utilization && cache.kv_cache_memory_bytes > 0)
    return without_effect("--gpu-memory-utilization", "beside --kv-cache-memory-bytes");
  if (const auto size = cache.mamba_block_size; size && *size < 1)
    return refuse("--mamba-block-size", fmt::format("must be at least 1, not {}", *size));
  return {};
}

Result<void> check_prefix_cache(const EngineConfig& config) {
  const CacheConfig& cache = config.cache;
  if (cache.prefix_hash != PrefixHash::keyed && config.kv_events.endpoint.empty())
    return without_effect("--prefix-caching-hash-algo",
                          "without --kv-events-endpoint: no hash leaves the process");
  if (cache.enable_prefix_caching) return {};
  const std::string_view because = "with --no-enable-prefix-caching";
  if (cache.mamba_block_size) return without_effect("--mamba-block-size", because);
  if (cache.mamba_cache_mode.value_or(StateCacheMode::none) != StateCacheMode::none)
    return without_effect("--mamba-cache-mode", because);
  if (cache.hash_block_size) return without_effect("--hash-block-size", because);
  if (!config.kv_events.endpoint.empty()) return without_effect("--kv-events-endpoint", because);
  return {};
}

Result<void> check_speculative(const EngineConfig& config) {
  const SpeculativeConfig& speculative = config.speculative;
  if (speculative.method == DraftMethod::none) return {};
  constexpr int kMostDrafts = 128;
  const int count = speculative.num_speculative_tokens;
  if (count < 1 || count > kMostDrafts)
    return refuse(
        "--speculative-config",
        fmt::format("asks for num_speculative_tokens {}; from 1 to {} work", count, kMostDrafts));
  const bool is_beside = speculative.uses_draft_model() && speculative.method != DraftMethod::mtp;
  if (is_beside && speculative.model.empty())
    return refuse("--speculative-config",
                  "names no model: the folder of the draft model is missing");
  if (!is_beside && !speculative.model.empty())
    return refuse(
        "--speculative-config",
        fmt::format("has no use for a model with this method, which is {}; remove it",
                    speculative.method == DraftMethod::mtp ? "a module of the checkpoint itself"
                                                           : "prompt lookup"));
  if (speculative.method == DraftMethod::ngram &&
      (speculative.prompt_lookup_min < 1 ||
       speculative.prompt_lookup_max < speculative.prompt_lookup_min))
    return refuse("--speculative-config",
                  fmt::format("looks up {} to {} tokens; prompt_lookup_min must be at least 1 and "
                              "at most prompt_lookup_max",
                              speculative.prompt_lookup_min, speculative.prompt_lookup_max));
  if (count >= config.scheduler.max_num_batched_tokens)
    return refuse("--speculative-config",
                  fmt::format("asks for num_speculative_tokens {}; a step has room for {} beside "
                              "the token they follow (--max-num-batched-tokens)",
                              count, config.scheduler.max_num_batched_tokens - 1));
  if (speculative.uses_draft_model() && config.device == DeviceKind::cuda)
    return refuse("--speculative-config",
                  "asks for a draft model, which runs with --device cpu only; use method ngram");
  return {};
}

Result<void> check_scheduler(const SchedulerConfig& scheduler, DeviceKind device) {
  for (const auto& checked :
       {at_least("--max-num-seqs", scheduler.max_num_seqs, 1),
        at_least("--max-num-batched-tokens", scheduler.max_num_batched_tokens, 1),
        at_least("--long-prefill-token-threshold", scheduler.long_prefill_token_threshold, 0),
        at_least("--max-num-queued-reqs", scheduler.max_num_queued_reqs, 0),
        at_least("--max-num-queued-tokens", scheduler.max_num_queued_tokens, 0)})
    if (checked.has_error()) return checked;
  if (scheduler.max_num_batched_tokens < scheduler.max_num_seqs)
    return refuse("--max-num-batched-tokens",
                  fmt::format("must be at least --max-num-seqs ({}), not {}: each running request "
                              "takes a token of the step",
                              scheduler.max_num_seqs, scheduler.max_num_batched_tokens));
  if (scheduler.async_scheduling && device == DeviceKind::cpu)
    return without_effect(
        *scheduler.async_scheduling ? "--async-scheduling" : "--no-async-scheduling",
        "on a CPU, which computes where the next step would be planned");
  const int threshold = scheduler.long_prefill_token_threshold;
  if (threshold > 0 && !scheduler.enable_chunked_prefill)
    return without_effect("--long-prefill-token-threshold", "with --no-enable-chunked-prefill");
  if (threshold > scheduler.max_num_batched_tokens)
    return without_effect("--long-prefill-token-threshold", "above --max-num-batched-tokens");
  return {};
}

Result<void> check_graphs(const EngineConfig& config) {
  const GraphConfig& graphs = config.graphs;
  const bool has_sizes = !graphs.capture_sizes.empty();
  if (config.device == DeviceKind::cpu) {
    const std::string_view because = "on a CPU, which has no graphs";
    if (graphs.enforce_eager) return without_effect("--enforce-eager", because);
    if (has_sizes) return without_effect("--cudagraph-capture-sizes", because);
  }
  if (graphs.enforce_eager && has_sizes)
    return without_effect("--cudagraph-capture-sizes", "with --enforce-eager");
  for (const int size : graphs.capture_sizes)
    if (size < 1 || size > config.scheduler.max_num_seqs)
      return refuse("--cudagraph-capture-sizes",
                    fmt::format("must be from 1 to --max-num-seqs ({}), not {}",
                                config.scheduler.max_num_seqs, size));
  return {};
}

Result<void> check_events(const KvEventsConfig& events) {
  const bool off = events.endpoint.empty();
  const std::string_view because = "without --kv-events-endpoint";
  if (off && !events.replay_endpoint.empty())
    return without_effect("--kv-events-replay-endpoint", because);
  if (off && !events.topic.empty()) return without_effect("--kv-events-topic", because);
  if (off && events.hash_seed) return without_effect("--kv-events-hash-seed", because);
  if (off && !events.int_hashes) return without_effect("--kv-events-byte-hashes", because);
  if (off && events.high_water_mark) return without_effect("--kv-events-hwm", because);
  if (events.replay_endpoint.empty() && events.buffer_steps)
    return without_effect("--kv-events-buffer-steps", "without --kv-events-replay-endpoint");
  if (const auto buffer = at_least("--kv-events-buffer-steps", events.buffer_steps.value_or(1), 1);
      buffer.has_error())
    return buffer;
  return at_least("--kv-events-hwm", events.high_water_mark.value_or(0), 0);
}

Result<void> check_transfer_sides(const KvTransferConfig& transfer) {
  if (transfer.prefills() && transfer.listen.empty())
    return refuse("--kv-listen",
                  "is missing: where others fetch what this server prefills, such as "
                  "127.0.0.1:5600 or unix:/run/quire-kv.sock");
  if (!transfer.prefills() && !transfer.listen.empty())
    return without_effect("--kv-listen", "without --kv-role prefill or both");
  if (transfer.decodes() && transfer.peers.empty())
    return refuse("--kv-peer",
                  "is missing: who this server may fetch from, such as 127.0.0.1:5600 or "
                  "unix:/run/quire-kv.sock");
  if (!transfer.decodes() && !transfer.peers.empty())
    return without_effect("--kv-peer", "without --kv-role decode or both");
  if (!transfer.decodes() && transfer.load_failure_policy)
    return without_effect("--kv-load-failure-policy", "without --kv-role decode or both");
  return {};
}

Result<void> check_transfer(const EngineConfig& config) {
  const KvTransferConfig& transfer = config.kv_transfer;
  if (auto sides = check_transfer_sides(transfer); sides.has_error()) return sides;
  if (transfer.role == KvRole::none) {
    const std::string_view because = "without --kv-role";
    if (transfer.plane) return without_effect("--kv-plane", because);
    if (transfer.buffer_bytes != 0) return without_effect("--kv-transfer-buffer-bytes", because);
    if (transfer.lease_seconds) return without_effect("--kv-lease-seconds", because);
    return {};
  }
  if (transfer.plane == KvPlane::nixl)
    return Error{ErrorCode::unsupported,
                 "--kv-plane nixl is not built; local works between Quire servers", "--kv-plane"};
  if (config.device == DeviceKind::mock)
    return without_effect("--kv-role", "with --device mock, which keeps no keys and values");
  if (config.speculative.uses_draft_model())
    return refuse("--speculative-config",
                  "asks for a draft model, whose keys and values --kv-role does not hand over; use "
                  "method ngram or none");
  if (transfer.buffer_bytes < 0)
    return refuse("--kv-transfer-buffer-bytes", "must not be negative");
  return at_least("--kv-lease-seconds", transfer.lease_seconds.value_or(1), 1);
}

Result<void> check_threads(int threads) {
  constexpr int kMostThreads = 1024;
  if (threads > kMostThreads)
    return refuse("--cpu-threads",
                  fmt::format("must be at most {}, not {}", kMostThreads, threads));
  return at_least("--cpu-threads", threads, 0);
}

Result<void> check_parallel(const ParallelConfig& parallel) {
  if (parallel.tensor_parallel_size > 1)
    return refuse("--tensor-parallel-size",
                  fmt::format("{} is not supported: a model runs whole on one device; use 1, or "
                              "--data-parallel-size for several engines",
                              parallel.tensor_parallel_size));
  if (auto tensor = at_least("--tensor-parallel-size", parallel.tensor_parallel_size, 1);
      tensor.has_error())
    return tensor;
  if (parallel.data_parallel_size > kMostEngines)
    return refuse("--data-parallel-size", fmt::format("must be at most {}, not {}", kMostEngines,
                                                      parallel.data_parallel_size));
  return at_least("--data-parallel-size", parallel.data_parallel_size, 1);
}

}  // namespace

Result<void> validate(const EngineConfig& config) {
  if (config.model.path.empty()) return refuse("MODEL", "is missing");
  if (config.model.max_model_len < kAutoFit)
    return refuse("--max-model-len", "must be positive, or -1 for what memory holds");
  for (const auto& checked :
       {check_parallel(config.parallel), check_threads(config.cpu_threads),
        check_cache(config.cache), check_prefix_cache(config),
        check_scheduler(config.scheduler, config.device), check_speculative(config),
        check_graphs(config), check_events(config.kv_events), check_transfer(config)})
    if (checked.has_error()) return checked;
  if (config.mock_step_us != 0 && config.device != DeviceKind::mock)
    return without_effect("--mock-step-us", "without --device mock");
  if (config.device == DeviceKind::cuda && config.cpu_threads > 0)
    return without_effect("--cpu-threads", "with --device cuda");
  return {};
}

}  // namespace quire
