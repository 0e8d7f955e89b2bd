#include "engine/kv_plan/admission.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/size_text.h"

namespace quire {
namespace {

KvPlanError fail(KvPlanErrorCode code, std::string detail) {
  return {.code = code, .detail = std::move(detail)};
}

constexpr std::int64_t kNullBlocks = 1;

// What to give so that a request of such a length fits, as far as there is as much.
std::string more_memory(const Planning& planning, std::int64_t max_model_len) {
  const std::int64_t blocks = planning.blocks_for(max_model_len);
  const auto& override = planning.input.num_gpu_blocks_override;
  std::int64_t most = 0;
  for (const WorkerKvPlan& worker : planning.workers) {
    const std::int64_t bytes = bytes_for(worker, blocks);
    if (bytes > (override ? worker.available_bytes : worker.most_bytes)) return {};
    most = std::max(most, bytes);
  }
  return override ? fmt::format("CacheConfig::num_gpu_blocks_override {}", blocks)
                  : fmt::format("CacheConfig::kv_cache_memory_bytes {}",
                                most * planning.input.sharers);
}

// Empty where nothing would help.
std::string what_works(std::initializer_list<std::string> advice) {
  std::string list;
  for (const std::string& one : advice)
    if (!one.empty()) list += (list.empty() ? ". What works: " : ", or ") + one;
  return list;
}

KvPlanError no_memory(const Planning& planning) {
  const std::int64_t length = planning.input.max_model_len;
  return fail(KvPlanErrorCode::no_memory,
              "no memory is left for the KV cache" + what_works({more_memory(planning, length)}));
}

KvPlanError too_long(const Planning& planning, const WorkerKvPlan& worker) {
  const std::int64_t length = planning.input.max_model_len;
  const std::int64_t needed = planning.needed_blocks(length);
  const std::int64_t blocks = planning.own_blocks(worker);
  KvPlanError error{.code = KvPlanErrorCode::admission, .detail = {}, .max_model_len = length};
  error.needed_bytes = bytes_for(worker, needed);
  error.available_bytes =
      planning.input.num_gpu_blocks_override ? bytes_for(worker, blocks) : worker.available_bytes;
  error.memory_max_model_len = planning.longest_request(blocks, length);
  error.estimated_max_model_len =
      planning.longest_request(planning.num_blocks - kNullBlocks, length);
  const std::string shorter =
      error.estimated_max_model_len > 0
          ? fmt::format("ModelOptions::max_model_len {} (or -1, the longest that fits)",
                        error.estimated_max_model_len)
          : std::string();
  error.detail = fmt::format(
      "one request of max_model_len {} needs {} KV cache blocks and the null block ({}); "
      "there are {} ({}){}",
      length, needed, bytes_text(bytes_for(worker, planning.blocks_for(length))), blocks,
      bytes_text(error.available_bytes), what_works({shorter, more_memory(planning, length)}));
  return error;
}

PlanResult<std::int64_t> fit_length(const Planning& planning) {
  const std::int64_t fit =
      planning.longest_request(planning.num_blocks - kNullBlocks, planning.input.max_model_len);
  if (fit > 0) return fit;
  return fail(KvPlanErrorCode::autofit_zero,
              fmt::format("not one token fits: that takes {} KV cache blocks and the null block, "
                          "there are {}{}",
                          planning.needed_blocks(1), planning.num_blocks,
                          what_works({more_memory(planning, 1)})));
}

}  // namespace

KvLimits Planning::limits(std::int64_t max_model_len) const {
  return {.max_model_len = max_model_len,
          .max_num_batched_tokens = input.max_num_batched_tokens,
          .context_parallel = input.decode_context_parallel * input.prefill_context_parallel,
          .state_cache_mode = input.state_cache_mode};
}

std::int64_t Planning::needed_blocks(std::int64_t max_model_len) const {
  return blocks_per_request(groups, limits(max_model_len));
}

std::int64_t Planning::blocks_for(std::int64_t max_model_len) const {
  return needed_blocks(max_model_len) + kNullBlocks;
}

std::int64_t Planning::longest_request(std::int64_t usable, std::int64_t cap) const {
  std::int64_t fits = 0, above = cap + 1;
  while (above - fits > 1) {
    const std::int64_t middle = fits + (above - fits) / 2;
    (needed_blocks(middle) <= usable ? fits : above) = middle;
  }
  return fits;
}

std::int64_t Planning::own_blocks(const WorkerKvPlan& worker) const {
  if (input.num_gpu_blocks_override) return *input.num_gpu_blocks_override;
  return std::max<std::int64_t>(worker.available_bytes, 0) /
         static_cast<std::int64_t>(worker.pool_bytes_per_block);
}

PlanResult<std::int64_t> admit(const Planning& planning) {
  const std::int64_t length = planning.input.max_model_len;
  if (planning.groups.empty()) return length;
  if (planning.input.auto_fit) return fit_length(planning);
  const std::int64_t needed = planning.needed_blocks(length);
  // In vLLM's order: a worker that lacks memory comes before one that lacks the null block.
  for (const std::int64_t null_blocks : {std::int64_t{0}, kNullBlocks}) {
    for (const WorkerKvPlan& worker : planning.workers) {
      if (worker.pool_bytes_per_block == 0) continue;
      if (!planning.input.num_gpu_blocks_override && worker.available_bytes <= 0)
        return no_memory(planning);
      if (needed + null_blocks > planning.own_blocks(worker)) return too_long(planning, worker);
    }
  }
  return length;
}

}  // namespace quire
