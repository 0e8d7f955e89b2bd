#include "engine/config.h"

#include <fmt/format.h>

#include <charconv>

namespace quire {
namespace {

constexpr int kMostEngines = 64;
constexpr int kMostRanks = 64;

Error refuse(std::string field, std::string why) {
  return {ErrorCode::invalid_argument, field + " " + why, field};
}

Error without_effect(std::string field, std::string_view because) {
  return refuse(std::move(field), fmt::format("has no effect {}; remove it", because));
}

Result<void> at_least(const char* field, std::int64_t value, std::int64_t least) {
  if (value >= least) return {};
  return refuse(field, fmt::format("must be at least {}, not {}", least, value));
}

Result<void> check_cache(const CacheConfig& cache) {
  if (cache.block_size < 0) return refuse("CacheConfig::block_size", "must be positive");
  if (const auto blocks = cache.num_gpu_blocks_override; blocks && *blocks < 2)
    return refuse("CacheConfig::num_gpu_blocks_override",
                  fmt::format("must be at least 2 (block 0 holds no tokens), not {}", *blocks));
  if (cache.kv_cache_memory_bytes < 0)
    return refuse("CacheConfig::kv_cache_memory_bytes", "must not be negative");
  if (const auto share = cache.gpu_memory_utilization; share && !(*share > 0 && *share <= 1))
    return refuse("CacheConfig::gpu_memory_utilization",
                  fmt::format("must be above 0 and at most 1, not {}", *share));
  if (cache.gpu_memory_utilization && cache.kv_cache_memory_bytes > 0)
    return without_effect("CacheConfig::gpu_memory_utilization",
                          "beside CacheConfig::kv_cache_memory_bytes");
  if (const auto size = cache.mamba_block_size; size && *size < 1)
    return refuse("CacheConfig::mamba_block_size",
                  fmt::format("must be at least 1, not {}", *size));
  return {};
}

Result<void> check_prefix_cache(const EngineConfig& config) {
  const CacheConfig& cache = config.cache;
  if (cache.prefix_hash != PrefixHash::keyed && config.kv_events.endpoint.empty())
    return without_effect("CacheConfig::prefix_hash",
                          "without KvEventsConfig::endpoint: no hash leaves the process");
  if (cache.enable_prefix_caching) return {};
  const std::string_view because = "with CacheConfig::enable_prefix_caching=false";
  if (cache.mamba_block_size) return without_effect("CacheConfig::mamba_block_size", because);
  if (cache.mamba_cache_mode.value_or(StateCacheMode::none) != StateCacheMode::none)
    return without_effect("CacheConfig::mamba_cache_mode", because);
  if (cache.hash_block_size) return without_effect("CacheConfig::hash_block_size", because);
  if (!config.kv_events.endpoint.empty())
    return without_effect("KvEventsConfig::endpoint", because);
  return {};
}

Result<void> check_speculative(const EngineConfig& config) {
  const SpeculativeConfig& speculative = config.speculative;
  if (speculative.method == DraftMethod::none) return {};
  constexpr int kMostDrafts = 128;
  const int count = speculative.num_speculative_tokens;
  if (count < 1 || count > kMostDrafts)
    return refuse(
        "EngineConfig::speculative",
        fmt::format("asks for num_speculative_tokens {}; from 1 to {} work", count, kMostDrafts));
  const bool is_beside = speculative.uses_draft_model() && speculative.method != DraftMethod::mtp;
  if (is_beside && speculative.model.empty())
    return refuse("EngineConfig::speculative",
                  "names no model: the folder of the draft model is missing");
  if (!is_beside && !speculative.model.empty())
    return refuse(
        "EngineConfig::speculative",
        fmt::format("has no use for a model with this method, which is {}; remove it",
                    speculative.method == DraftMethod::mtp ? "a module of the checkpoint itself"
                                                           : "prompt lookup"));
  if (speculative.method == DraftMethod::ngram &&
      (speculative.prompt_lookup_min < 1 ||
       speculative.prompt_lookup_max < speculative.prompt_lookup_min))
    return refuse("EngineConfig::speculative",
                  fmt::format("looks up {} to {} tokens; prompt_lookup_min must be at least 1 and "
                              "at most prompt_lookup_max",
                              speculative.prompt_lookup_min, speculative.prompt_lookup_max));
  if (speculative.disable_by_batch_size < 0)
    return refuse("EngineConfig::speculative", "has a negative disable_by_batch_size");
  if (speculative.draft_sampling != DraftSampling::greedy && !speculative.uses_draft_model())
    return refuse("EngineConfig::speculative",
                  "has draft_sample_method \"probabilistic\", but prompt lookup has no "
                  "distribution to draw from; remove it");
  if (speculative.draft_sampling != DraftSampling::greedy && config.deterministic)
    return refuse("EngineConfig::speculative",
                  "has draft_sample_method \"probabilistic\", whose answers depend on where steps "
                  "end; EngineConfig::deterministic promises others");
  if (count >= config.scheduler.max_num_batched_tokens)
    return refuse("EngineConfig::speculative",
                  fmt::format("asks for num_speculative_tokens {}; a step has room for {} beside "
                              "the token they follow (SchedulerConfig::max_num_batched_tokens)",
                              count, config.scheduler.max_num_batched_tokens - 1));
  return {};
}

Result<void> check_scheduler(const SchedulerConfig& scheduler, DeviceKind device) {
  for (const auto& checked :
       {at_least("SchedulerConfig::max_num_seqs", scheduler.max_num_seqs, 1),
        at_least("SchedulerConfig::max_num_batched_tokens", scheduler.max_num_batched_tokens, 1),
        at_least("SchedulerConfig::long_prefill_token_threshold",
                 scheduler.long_prefill_token_threshold, 0),
        at_least("SchedulerConfig::target_itl_ms", scheduler.target_itl_ms, 0),
        at_least("SchedulerConfig::max_num_queued_reqs", scheduler.max_num_queued_reqs, 0),
        at_least("SchedulerConfig::max_num_queued_tokens", scheduler.max_num_queued_tokens, 0)})
    if (checked.has_error()) return checked;
  if (scheduler.max_num_batched_tokens < scheduler.max_num_seqs)
    return refuse(
        "SchedulerConfig::max_num_batched_tokens",
        fmt::format(
            "must be at least SchedulerConfig::max_num_seqs ({}), not {}: each running request "
            "takes a token of the step",
            scheduler.max_num_seqs, scheduler.max_num_batched_tokens));
  if (scheduler.async_scheduling.value_or(false) && device == DeviceKind::cpu)
    return without_effect("SchedulerConfig::async_scheduling",
                          "on a CPU, which computes where the next step would be planned");
  const int threshold = scheduler.long_prefill_token_threshold;
  if (threshold > 0 && !scheduler.enable_chunked_prefill)
    return without_effect("SchedulerConfig::long_prefill_token_threshold",
                          "with SchedulerConfig::enable_chunked_prefill=false");
  if (threshold > scheduler.max_num_batched_tokens)
    return without_effect("SchedulerConfig::long_prefill_token_threshold",
                          "above SchedulerConfig::max_num_batched_tokens");
  return {};
}

// There must be prompts to cut, and answers beside them.
Result<void> check_pace(const EngineConfig& config) {
  if (config.scheduler.target_itl_ms == 0) return {};
  constexpr const char* kField = "SchedulerConfig::target_itl_ms";
  if (!config.scheduler.enable_chunked_prefill)
    return without_effect(kField, "with SchedulerConfig::enable_chunked_prefill=false");
  if (config.device == DeviceKind::mock)
    return without_effect(kField, "with EngineConfig::device mock, which computes no prompts");
  if (config.kv_transfer.role == KvRole::prefill)
    return without_effect(kField,
                          "with KvTransferConfig::role prefill: nobody waits for a second token");
  return {};
}

Result<void> check_graphs(const EngineConfig& config) {
  const GraphConfig& graphs = config.graphs;
  const bool has_sizes = !graphs.capture_sizes.empty();
  if (config.device == DeviceKind::cpu && has_sizes)
    return without_effect("GraphConfig::capture_sizes", "on a CPU, which has no graphs");
  if (graphs.enforce_eager && has_sizes)
    return without_effect("GraphConfig::capture_sizes", "with GraphConfig::enforce_eager");
  const char* most = "GraphConfig::max_capture_size";
  if (graphs.max_capture_size < 0) return refuse(most, "must not be negative");
  if (graphs.max_capture_size > 0 && (has_sizes || graphs.enforce_eager))
    return without_effect(most, has_sizes ? "with GraphConfig::capture_sizes"
                                          : "with GraphConfig::enforce_eager");
  for (const int size : graphs.capture_sizes)
    if (size < 1 || size > config.scheduler.max_num_batched_tokens)
      return refuse(
          "GraphConfig::capture_sizes",
          fmt::format("must be from 1 to SchedulerConfig::max_num_batched_tokens ({}), not {}",
                      config.scheduler.max_num_batched_tokens, size));
  return {};
}

// Each data-parallel engine has a port of its own, counted from this one.
Result<void> check_ports(const char* field, const std::string& endpoint, int engines) {
  if (!endpoint.starts_with("tcp://")) return {};
  const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
  if (port == "*") return {};
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error == std::errc() && end == port.data() + port.size() && number >= 0 &&
      number + engines - 1 <= 65535)
    return {};
  return refuse(field, fmt::format("{} has no port from 0 to {}, or *", endpoint,
                                   65535 - (engines - 1)));
}

Result<void> check_events(const KvEventsConfig& events, int engines) {
  const bool off = events.endpoint.empty();
  const std::string_view because = "without KvEventsConfig::endpoint";
  if (off && !events.replay_endpoint.empty())
    return without_effect("KvEventsConfig::replay_endpoint", because);
  if (off && !events.topic.empty()) return without_effect("KvEventsConfig::topic", because);
  if (off && events.hash_seed) return without_effect("KvEventsConfig::hash_seed", because);
  if (off && !events.int_hashes) return without_effect("KvEventsConfig::int_hashes=false", because);
  if (off && events.high_water_mark)
    return without_effect("KvEventsConfig::high_water_mark", because);
  if (events.replay_endpoint.empty() && events.buffer_steps)
    return without_effect("KvEventsConfig::buffer_steps",
                          "without KvEventsConfig::replay_endpoint");
  if (auto ok = check_ports("KvEventsConfig::endpoint", events.endpoint, engines); !ok) return ok;
  if (auto ok = check_ports("KvEventsConfig::replay_endpoint", events.replay_endpoint, engines);
      !ok)
    return ok;
  if (const auto buffer =
          at_least("KvEventsConfig::buffer_steps", events.buffer_steps.value_or(1), 1);
      buffer.has_error())
    return buffer;
  return at_least("KvEventsConfig::high_water_mark", events.high_water_mark.value_or(0), 0);
}

Result<void> check_transfer_sides(const KvTransferConfig& transfer) {
  if (transfer.prefills() && transfer.listen.empty())
    return refuse("KvTransferConfig::listen",
                  "is missing: where others fetch what this server prefills, such as "
                  "127.0.0.1:5600 or unix:/run/quire-kv.sock");
  if (!transfer.prefills() && !transfer.listen.empty() && !transfer.uses_mooncake() &&
      !transfer.pushes_nixl())
    return without_effect("KvTransferConfig::listen",
                          "without KvTransferConfig::role prefill or both");
  if (transfer.decodes() && transfer.peers.empty())
    return refuse("KvTransferConfig::peers",
                  "is missing: who this server may fetch from, such as 127.0.0.1:5600 or "
                  "unix:/run/quire-kv.sock");
  if (!transfer.decodes() && !transfer.peers.empty() && !transfer.uses_mooncake() &&
      !transfer.pushes_nixl())
    return without_effect("KvTransferConfig::peers",
                          "without KvTransferConfig::role decode or both");
  if (!transfer.decodes() && transfer.load_failure_policy)
    return without_effect("KvTransferConfig::load_failure_policy",
                          "without KvTransferConfig::role decode or both");
  return {};
}

// NIXL's side channel is TCP, and without the library nobody reads what it is told.
Result<void> check_nixl(const KvTransferConfig& transfer) {
  const NixlConfig& nixl = transfer.nixl;
  if (!transfer.uses_nixl()) {
    const std::string_view because = "without KvTransferConfig::plane nixl";
    if (!nixl.library.empty()) return without_effect("NixlConfig::library", because);
    if (!nixl.profile.empty()) return without_effect("NixlConfig::profile", because);
    if (!nixl.peer_model.empty()) return without_effect("NixlConfig::peer_model", because);
    if (!nixl.peer_attention.empty()) return without_effect("NixlConfig::peer_attention", because);
    if (nixl.compare_hash) return without_effect("NixlConfig::compare_hash", because);
    if (nixl.pushes) return without_effect("NixlConfig::pushes", because);
    return {};
  }
  const std::string_view kTcp = "over KvTransferConfig::plane nixl must be HOST:PORT, not ";
  if (transfer.listen.starts_with("unix:"))
    return refuse("KvTransferConfig::listen", fmt::format("{}{}", kTcp, transfer.listen));
  for (const KvPeer& peer : transfer.peers)
    if (peer.address.starts_with("unix:"))
      return refuse("KvTransferConfig::peers", fmt::format("{}{}", kTcp, peer.address));
  if (!nixl.pushes || transfer.role == KvRole::none) return {};
  if (transfer.listen.empty())
    return refuse("KvTransferConfig::listen",
                  "is missing: this server's side channel, such as 10.0.0.7:5600; with "
                  "NixlConfig::pushes both sides ask each other");
  if (transfer.peers.empty())
    return refuse("KvTransferConfig::peers",
                  "is missing: with NixlConfig::pushes whoever prefills writes only to those, such "
                  "as 10.0.0.8:5600");
  return {};
}

// Of whoever is written to, or over NIXL writes.
Result<void> check_peer_block_size(const KvTransferConfig& transfer) {
  const std::string kField = "KvTransferConfig::peer_block_size";
  constexpr int kMostTokens = 1 << 14;
  const int size = transfer.peer_block_size;
  if (size == 0) return {};
  if (!transfer.uses_mooncake() && !transfer.pushes_nixl())
    return without_effect(kField, "without KvTransferConfig::plane mooncake or NixlConfig::pushes");
  if (transfer.uses_mooncake() && !transfer.decodes())
    return without_effect(kField, "without KvTransferConfig::role decode or both");
  if (size < 0 || size > kMostTokens)
    return refuse(kField, fmt::format("must be from 1 to {}, is {}", kMostTokens, size));
  return {};
}

// The server that decodes is written to, so it must be reached as well.
Result<void> check_mooncake(const KvTransferConfig& transfer) {
  if (!transfer.uses_mooncake()) return {};
  const std::string_view kTcp = "over KvTransferConfig::plane mooncake must be HOST:PORT, not ";
  if (transfer.role != KvRole::none && transfer.listen.empty())
    return refuse("KvTransferConfig::listen",
                  "is missing: the address at which this server is reached, such as "
                  "10.0.0.7:8998; over KvTransferConfig::plane mooncake whoever prefills writes to "
                  "whoever decodes");
  if (transfer.listen.starts_with("unix:"))
    return refuse("KvTransferConfig::listen", fmt::format("{}{}", kTcp, transfer.listen));
  for (const KvPeer& peer : transfer.peers)
    if (peer.address.starts_with("unix:"))
      return refuse("KvTransferConfig::peers", fmt::format("{}{}", kTcp, peer.address));
  return {};
}

Result<void> check_transfer(const EngineConfig& config) {
  const KvTransferConfig& transfer = config.kv_transfer;
  if (auto sides = check_transfer_sides(transfer); sides.has_error()) return sides;
  if (auto nixl = check_nixl(transfer); nixl.has_error()) return nixl;
  if (auto mooncake = check_mooncake(transfer); mooncake.has_error()) return mooncake;
  if (auto blocks = check_peer_block_size(transfer); blocks.has_error()) return blocks;
  if (transfer.role == KvRole::none) {
    const std::string_view because = "without KvTransferConfig::role";
    if (transfer.plane) return without_effect("KvTransferConfig::plane", because);
    if (transfer.buffer_bytes != 0)
      return without_effect("KvTransferConfig::buffer_bytes", because);
    if (transfer.lease_seconds) return without_effect("KvTransferConfig::lease_seconds", because);
    return {};
  }
  if (config.device == DeviceKind::mock)
    return without_effect("KvTransferConfig::role",
                          "with EngineConfig::device mock, which keeps no keys and values");
  if (transfer.buffer_bytes < 0)
    return refuse("KvTransferConfig::buffer_bytes", "must not be negative");
  return at_least("KvTransferConfig::lease_seconds", transfer.lease_seconds.value_or(1), 1);
}

Result<void> check_offload(const EngineConfig& config) {
  const KvOffloadConfig& offload = config.kv_offload;
  if (offload.host_bytes < 0) return refuse("KvOffloadConfig::host_bytes", "must not be negative");
  if (offload.path_bytes < 0) return refuse("KvOffloadConfig::path_bytes", "must not be negative");
  if (offload.path_bytes > 0 && offload.path.empty())
    return without_effect("KvOffloadConfig::path_bytes", "without KvOffloadConfig::path");
  if (!offload.path.empty() && !offload.is_on())
    return refuse("KvOffloadConfig::path",
                  "needs KvOffloadConfig::host_bytes: blocks go by way of the host's memory");
  if (!offload.is_on()) return {};
  if (!config.cache.enable_prefix_caching)
    return without_effect("KvOffloadConfig::host_bytes",
                          "with CacheConfig::enable_prefix_caching=false");
  if (config.device == DeviceKind::mock)
    return without_effect("KvOffloadConfig::host_bytes",
                          "with EngineConfig::device mock, which keeps no keys and values");
  return {};
}

Result<void> check_threads(int threads) {
  constexpr int kMostThreads = 1024;
  if (threads > kMostThreads)
    return refuse("EngineConfig::cpu_threads",
                  fmt::format("must be at most {}, not {}", kMostThreads, threads));
  return at_least("EngineConfig::cpu_threads", threads, 0);
}

Result<void> check_ranks(const EngineConfig& config) {
  const int size = config.parallel.tensor_parallel_size;
  if (size <= 1) return {};
  const auto refuse_with = [size](const std::string& what) {
    return Error{ErrorCode::unsupported,
                 fmt::format("ParallelConfig::tensor_parallel_size {} does not work with {}; use 1",
                             size, what),
                 "ParallelConfig::tensor_parallel_size"};
  };
  if (size > kMostRanks)
    return refuse("ParallelConfig::tensor_parallel_size",
                  fmt::format("must be at most {}, not {}", kMostRanks, size));
  if (config.device == DeviceKind::mock)
    return refuse_with("EngineConfig::device mock, which has no model");
  return {};
}

Result<void> check_parallel(const ParallelConfig& parallel) {
  if (auto tensor =
          at_least("ParallelConfig::tensor_parallel_size", parallel.tensor_parallel_size, 1);
      tensor.has_error())
    return tensor;
  if (parallel.data_parallel_size > kMostEngines)
    return refuse(
        "ParallelConfig::data_parallel_size",
        fmt::format("must be at most {}, not {}", kMostEngines, parallel.data_parallel_size));
  return at_least("ParallelConfig::data_parallel_size", parallel.data_parallel_size, 1);
}

}  // namespace

Result<void> validate(const EngineConfig& config) {
  if (config.model.path.empty()) return refuse("ModelOptions::path", "is missing");
  if (config.model.max_model_len < kAutoFit)
    return refuse("ModelOptions::max_model_len", "must be positive, or -1 for what memory holds");
  for (const auto& checked :
       {check_parallel(config.parallel), check_ranks(config), check_threads(config.cpu_threads),
        check_cache(config.cache), check_prefix_cache(config),
        check_scheduler(config.scheduler, config.device), check_pace(config),
        check_speculative(config), check_graphs(config),
        check_events(config.kv_events, config.parallel.data_parallel_size), check_transfer(config),
        check_offload(config)})
    if (checked.has_error()) return checked;
  if (config.mock_step_us != 0 && config.device != DeviceKind::mock)
    return without_effect("EngineConfig::mock_step_us", "without EngineConfig::device mock");
  if (config.device == DeviceKind::cuda && config.cpu_threads > 0)
    return without_effect("EngineConfig::cpu_threads", "with EngineConfig::device cuda");
  return {};
}

}  // namespace quire
