// A plan that does not fit says by how much, and what works.

#include <fmt/format.h>

#include <cmath>

#include "engine/core/plan_phases.h"
#include "engine/size_text.h"

namespace quire {
namespace {

std::int64_t weight_bytes(const Planning& planning) {
  return signed_of(planning.plan.uses[MemoryPurpose::weights].device) + mapped_share(planning);
}

std::string joined(const std::vector<std::string>& advice) {
  std::string list;
  for (const std::string& one : advice) list += (list.empty() ? "" : ", or ") + one;
  return list;
}

// The share of the device that holds so much, if it can.
std::vector<std::string> larger_share(const Planning& planning, std::int64_t bytes) {
  const bool is_share = planning.plan.allowed_bytes < planning.plan.device_bytes;
  const double share = std::ceil(100.0 * static_cast<double>(bytes) /
                                 static_cast<double>(planning.plan.device_bytes)) /
                       100;
  if (!is_share || share > 1) return {};
  return {fmt::format("CacheConfig::gpu_memory_utilization {:.2f}", share)};
}

Error too_large(const Planning& planning, const std::string& what, std::int64_t bytes) {
  const EnginePlan& plan = planning.plan;
  const std::string of_what =
      plan.allowed_bytes < plan.device_bytes
          ? fmt::format(" ({:.2f} of {})",
                        planning.config.cache.gpu_memory_utilization.value_or(kDefaultUtilization),
                        bytes_text(plan.device_bytes))
          : std::string();
  std::vector<std::string> advice = larger_share(planning, bytes);
  const double share =
      static_cast<double>(plan.allowed_bytes) / static_cast<double>(plan.device_bytes);
  constexpr double kForRounding = 1.001;
  const bool is_default = planning.device.is_host_memory &&
                          !planning.config.cache.gpu_memory_utilization &&
                          planning.config.cache.kv_cache_memory_bytes == 0;
  advice.push_back(fmt::format(
      "a device of at least {}{}",
      bytes_text(static_cast<std::int64_t>(kForRounding * static_cast<double>(bytes) / share)),
      is_default ? fmt::format(" with CacheConfig::kv_cache_memory_bytes {}",
                               (bytes - device_total(planning)) * planning.sharers)
                 : ""));
  return {ErrorCode::unavailable,
          fmt::format("{} do not fit {}{}. What works: {}", what, bytes_text(plan.allowed_bytes),
                      of_what, joined(advice)),
          "no_memory"};
}

// A cache that leaves so much of the device unused that what is there suffices.
std::string smaller_cache(const Planning& planning, std::int64_t needed, std::int64_t there) {
  const EnginePlan& plan = planning.plan;
  const std::int64_t bytes = signed_of(plan.uses[MemoryPurpose::kv_cache].device) - needed + there;
  if (planning.config.cache.gpu_memory_utilization) {
    const auto share = static_cast<double>(plan.allowed_bytes - needed + there) /
                       static_cast<double>(plan.device_bytes);
    return fmt::format("CacheConfig::gpu_memory_utilization {:.4f}", std::floor(1e4 * share) / 1e4);
  }
  return fmt::format("CacheConfig::kv_cache_memory_bytes {}",
                     bytes * (planning.device.is_host_memory ? planning.sharers : 1));
}

}  // namespace

std::int64_t mapped_share(const Planning& planning) {
  return planning.plan.mapped_bytes / planning.engines_on_device;
}

std::int64_t device_total(const Planning& planning) {
  return signed_of(planning.plan.uses.total().device) + mapped_share(planning);
}

Result<void> check_weights(const Planning& planning, const SizedModel& sized) {
  const std::int64_t weights = weight_bytes(planning), others = device_total(planning);
  const std::int64_t least = others + sized.least_cache_bytes();
  if (weights > planning.plan.allowed_bytes)
    return too_large(planning, "weights of " + bytes_text(weights), least);
  const std::int64_t kept = signed_of(planning.plan.uses[MemoryPurpose::kv_offload].device);
  const std::int64_t travels = signed_of(planning.plan.uses[MemoryPurpose::kv_transfer].device);
  if (others > planning.plan.allowed_bytes && others - travels <= planning.plan.allowed_bytes)
    return too_large(planning,
                     fmt::format("{} for what travels (KvTransferConfig::buffer_bytes) beside {}",
                                 bytes_text(travels), bytes_text(others - travels)),
                     least);
  if (others > planning.plan.allowed_bytes)
    return too_large(
        planning,
        fmt::format("weights of {} and {} for steps of SchedulerConfig::max_num_batched_tokens {} "
                    "with SchedulerConfig::max_num_seqs {}{}",
                    bytes_text(weights), bytes_text(others - kept - weights),
                    planning.config.scheduler.max_num_batched_tokens,
                    planning.config.scheduler.max_num_seqs,
                    kept > 0 ? ", beside KvOffloadConfig::host_bytes of " + bytes_text(kept) : ""),
        least);
  return {};
}

std::string shortfall(const Planning& planning, const SizedModel& sized, std::int64_t other_bytes) {
  const EnginePlan& plan = planning.plan;
  const std::int64_t least = sized.least_cache_bytes();
  const bool is_share = plan.kv_cache_bytes == plan.allowed_bytes - other_bytes;
  if (!is_share || least <= plan.kv_cache_bytes) return "";
  const auto advice = larger_share(planning, other_bytes + least);
  return fmt::format(
      ". Everything but the cache takes {} of the {} that the engine may use: {} "
      "are missing{}{}",
      bytes_text(other_bytes), bytes_text(plan.allowed_bytes),
      bytes_text(least - plan.kv_cache_bytes),
      advice.empty() ? "" : ". What else works: ", joined(advice));
}

Result<void> check_fits(const Planning& planning, const SizedModel& sized) {
  const EnginePlan& plan = planning.plan;
  const bool is_host = planning.device.is_host_memory;
  // Mapped weights come and go with the page cache of the host.
  const std::int64_t needed = device_total(planning) - (is_host ? mapped_share(planning) : 0);
  const std::int64_t there =
      planning.device.available_bytes > 0 ? planning.device.available_bytes : plan.device_bytes;
  if (needed <= there) return {};
  const std::int64_t cache = signed_of(plan.uses[MemoryPurpose::kv_cache].device);
  const std::string advice = there - (needed - cache) >= sized.least_cache_bytes()
                                 ? ". What works: " + smaller_cache(planning, needed, there)
                                 : "";
  return Error{ErrorCode::unavailable,
               fmt::format("{} are planned, {} of them for the KV cache; of the device's {} there "
                           "are {} to be had, {} too few{}",
                           bytes_text(needed), bytes_text(cache), bytes_text(plan.device_bytes),
                           bytes_text(there), bytes_text(needed - there), advice),
               "no_memory"};
}

}  // namespace quire
