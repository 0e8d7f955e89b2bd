#include "server/metrics/engine_metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {

namespace {

std::string python(bool value) { return value ? "True" : "False"; }

template <class T>
std::string python(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "None";
}

std::string dtype_text(const std::optional<DType>& dtype) {
  return dtype ? std::string(name_of(*dtype)) : "auto";
}

// Of the groups that hold recurrent states; null where there are none.
const KvGroupInfo* state_group(const Ready& ready) {
  const auto found = std::ranges::find(ready.groups, "mamba", &KvGroupInfo::kind);
  return found == ready.groups.end() ? nullptr : &*found;
}

std::string mamba_block_size(const KvGroupInfo* states) {
  return states == nullptr ? "None" : std::to_string(states->block_size);
}

std::string mamba_page_size_padded(const KvGroupInfo* states) {
  const bool known = states != nullptr && states->unpadded_page_bytes > 0;
  const bool padded = known && states->page_bytes > states->unpadded_page_bytes;
  return padded ? std::to_string(states->page_bytes) : "None";
}

std::vector<MemorySample> memory_of(const Ready& ready) {
  std::vector<MemorySample> uses;
  for (const MemoryUseInfo& use : ready.memory)
    uses.push_back({use.purpose, use.planned_bytes, use.allocated_bytes, use.pinned_bytes});
  return uses;
}

// None where no share decides: the cache's size is given, or a CPU has its default.
std::string memory_share(const EngineConfig& config) {
  const auto& share = config.cache.gpu_memory_utilization;
  const bool unused =
      config.cache.kv_cache_memory_bytes > 0 || (config.device == DeviceKind::cpu && !share);
  return unused ? "None" : fmt::format("{}", share.value_or(kDefaultUtilization));
}

}  // namespace

std::map<std::string, std::string> cache_config_labels(const EngineConfig& config,
                                                       const Ready& ready) {
  const CacheConfig& cache = config.cache;
  const KvGroupInfo* states = state_group(ready);
  const bool keyed = cache.prefix_hash == PrefixHash::keyed;
  return {
      {"block_size", std::to_string(ready.block_size)},
      {"cache_dtype", dtype_text(cache.cache_dtype)},
      {"enable_prefix_caching", python(cache.enable_prefix_caching)},
      {"gpu_memory_utilization", memory_share(config)},
      {"kv_cache_dtype_resolved", ready.kv_cache_dtype},
      {"kv_cache_max_concurrency", fmt::format("{:.2f}", ready.max_concurrency)},
      {"kv_cache_memory_bytes",
       cache.kv_cache_memory_bytes ? std::to_string(cache.kv_cache_memory_bytes) : "None"},
      {"kv_cache_size_tokens", std::to_string(ready.kv_cache_size_tokens)},
      {"mamba_block_size", mamba_block_size(states)},
      {"mamba_cache_dtype", dtype_text(cache.mamba_cache_dtype)},
      {"mamba_cache_mode", ready.mamba_cache_mode.empty() ? "None" : ready.mamba_cache_mode},
      {"mamba_page_size_padded", mamba_page_size_padded(states)},
      {"mamba_ssm_cache_dtype", dtype_text(cache.mamba_ssm_cache_dtype)},
      {"max_model_len", std::to_string(ready.max_model_len)},
      {"num_cpu_blocks", "None"},
      {"num_gpu_blocks", std::to_string(ready.num_gpu_blocks)},
      {"num_gpu_blocks_override", python(cache.num_gpu_blocks_override)},
      {"prefix_caching_hash_algo", keyed ? "keyed" : "sha256_cbor"},
  };
}

EngineMetricsFeed::EngineMetricsFeed(EngineGroup& engines, Metrics& metrics)
    : engines_(engines), metrics_(metrics) {
  engines_.on_step([this](EngineId engine, const EngineStats& stats) {
    if (published_.load(std::memory_order_acquire)) {
      metrics_.observe_step(engine, stats);
    }
  });
}

void EngineMetricsFeed::publish(const EngineConfig& config) {
  for (const Ready& ready : engines_.ready().engines) {
    metrics_.add_engine(ready.engine, ready.max_model_len, cache_config_labels(config, ready));
    metrics_.add_memory(ready.engine, memory_of(ready));
    EngineStats stats = engines_.stats(ready.engine);
    // From the start, though the first step of an engine that drafts says so again.
    if (stats.draft_positions.empty()) {
      const auto most = static_cast<std::size_t>(config.speculative.num_speculative_tokens);
      stats.draft_positions.resize(most);
    }
    metrics_.observe_step(ready.engine, stats);
  }
  published_.store(true, std::memory_order_release);
}

}  // namespace quire
