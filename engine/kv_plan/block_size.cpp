#include "engine/kv_plan/block_size.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace quire {
namespace {

constexpr int kDefaultBlockSize = 16;

std::int64_t cdiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool reads(const KernelSizes& backend, int block_size) {
  return std::any_of(backend.begin(), backend.end(), [&](const KernelSize& kernel) {
    return kernel.multiple ? block_size % kernel.size == 0 : block_size == kernel.size;
  });
}

bool all_read(std::span<const KernelSizes> backends, int block_size) {
  return std::all_of(backends.begin(), backends.end(),
                     [&](const KernelSizes& backend) { return reads(backend, block_size); });
}

int smallest(const KernelSizes& backend) {
  return std::min_element(backend.begin(), backend.end(),
                          [](auto& a, auto& b) { return a.size < b.size; })
      ->size;
}

Error refuse(std::string field, std::string detail) {
  return {ErrorCode::invalid_argument, std::move(detail), std::move(field)};
}

}  // namespace

Error states_need_chunks() {
  return refuse("SchedulerConfig::enable_chunked_prefill",
                "prefix caching of recurrent states splits prompts at block boundaries and needs "
                "chunked prefill; enable it or use CacheConfig::enable_prefix_caching=false");
}

std::optional<int> common_kernel_block_size(int block_size, std::span<const KernelSizes> backends) {
  if (all_read(backends, block_size)) return block_size;
  int best = 0;
  for (const KernelSizes& backend : backends)
    for (const KernelSize& kernel : backend)
      if (!kernel.multiple && kernel.size > best && block_size % kernel.size == 0 &&
          all_read(backends, kernel.size))
        best = kernel.size;
  return best > 0 ? std::optional(best) : std::nullopt;
}

int preferred_block_size(const KernelSizes& backend) {
  const bool divides = std::any_of(backend.begin(), backend.end(), [](const KernelSize& kernel) {
    return kDefaultBlockSize % kernel.size == 0;
  });
  return backend.empty() || divides ? kDefaultBlockSize : smallest(backend);
}

Result<StateCacheChoice> choose_state_cache(const StateCacheRequest& request) {
  if (!request.enable_prefix_caching) {
    const auto whole_request = static_cast<int>(request.max_model_len);
    return StateCacheChoice{StateCacheMode::none, request.mamba_block_size.value_or(whole_request)};
  }
  StateCacheMode mode = request.mode;
  if (mode == StateCacheMode::none || (mode == StateCacheMode::all && !request.model_supports_all))
    mode = request.model_supports_all ? StateCacheMode::all : StateCacheMode::align;
  if (moves_state(mode) && !request.chunked_prefill) return states_need_chunks();
  return StateCacheChoice{mode, request.mamba_block_size.value_or(request.block_size)};
}

Result<HybridAlignment> align_hybrid(const HybridAlignmentRequest& request) {
  const auto token_bytes = static_cast<std::int64_t>(request.attention_bytes_per_token);
  const auto state_bytes = static_cast<std::int64_t>(request.state_bytes);
  const std::int64_t unit = request.mode == StateCacheMode::none ? 1 : request.state_chunk;
  const std::int64_t step =
      std::lcm<std::int64_t>(std::max(smallest(request.backend), request.block_size), unit);
  HybridAlignment aligned{.block_size = request.block_size};
  aligned.attention_page_bytes = request.attention_bytes_per_token * request.block_size;
  if (state_bytes == 0) return aligned;
  std::int64_t block = step * cdiv(state_bytes, step * token_bytes);
  if (request.mode == StateCacheMode::all) {
    const std::optional<int> scan =
        request.mamba_block_size ? request.mamba_block_size : request.mamba_chunk_size;
    if (!scan)
      return refuse("CacheConfig::mamba_block_size",
                    "CacheConfig::mamba_cache_mode all needs CacheConfig::mamba_block_size: the "
                    "model's config.json "
                    "names no chunk size");
    const std::int64_t chunk = std::lcm<std::int64_t>(*scan, step);
    block = chunk * cdiv(cdiv(state_bytes, token_bytes), chunk);
    aligned.mamba_block_size = static_cast<int>(block);
  }
  aligned.block_size = static_cast<int>(std::max<std::int64_t>(request.block_size, block));
  if (moves_state(request.mode)) aligned.mamba_block_size = aligned.block_size;

  const std::int64_t page = aligned.block_size * token_bytes;
  aligned.attention_page_bytes = static_cast<std::size_t>(page);
  if (page > state_bytes) {
    aligned.mamba_page_size_padded = aligned.attention_page_bytes;
    aligned.padding_percent = 100.0 * static_cast<double>(page - state_bytes) / state_bytes;
  }
  return aligned;
}

Result<void> validate_block_size(int block_size, const BlockSizeLimits& limits) {
  const std::string size = std::to_string(block_size);
  if (limits.context_parallel > 1 &&
      (limits.interleave > block_size || block_size % limits.interleave != 0))
    return refuse("BlockSizeLimits::interleave",
                  "the context-parallel interleave of " + std::to_string(limits.interleave) +
                      " tokens does not divide the block size of " + size + " tokens");
  if (limits.mode != StateCacheMode::align) return {};
  if (block_size > limits.max_num_batched_tokens)
    return refuse(
        "SchedulerConfig::max_num_batched_tokens",
        "with CacheConfig::mamba_cache_mode align a step must hold a whole block: at least " +
            size + " tokens, not " + std::to_string(limits.max_num_batched_tokens));
  if (limits.long_prefill_token_threshold > 0 && limits.long_prefill_token_threshold < block_size)
    return refuse(
        "SchedulerConfig::long_prefill_token_threshold",
        "with CacheConfig::mamba_cache_mode align it must be 0 or at least the block size of " +
            size + " tokens, not " + std::to_string(limits.long_prefill_token_threshold));
  if (limits.disable_chunked_mm_input)
    return refuse(
        "BlockSizeLimits::disable_chunked_mm_input",
        "it cannot be used with CacheConfig::mamba_cache_mode align, which splits prompts at block "
        "boundaries");
  return {};
}

}  // namespace quire
