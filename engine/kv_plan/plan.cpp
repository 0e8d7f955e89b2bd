#include "engine/kv_plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "engine/kv_plan/admission.h"

namespace quire {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

KvPlanError fail(KvPlanErrorCode code, std::string detail) {
  return {.code = code, .detail = std::move(detail)};
}

PlanResult<void> check_input(const KvPlanInput& input) {
  const auto invalid = [](std::string detail) {
    return fail(KvPlanErrorCode::invalid_input, std::move(detail));
  };
  if (input.workers.empty()) return invalid("there is no worker to plan for");
  if (input.max_model_len < 1) return invalid("max_model_len must be at least 1");
  for (const WorkerKvInput& worker : input.workers)
    for (const LayerKvSpec& layer : worker.layers)
      if (layer.spec.block_size < 1 || page_bytes(layer.spec) == 0)
        return invalid("layer " + layer.layer + " has blocks of no tokens or no bytes");
  return {};
}

// All layers of the model, in the order of the workers.
PlanResult<std::vector<LayerKvSpec>> all_layers(const std::vector<WorkerKvInput>& workers) {
  std::vector<LayerKvSpec> layers;
  std::unordered_map<std::string, std::size_t> seen;
  for (const WorkerKvInput& worker : workers) {
    for (const LayerKvSpec& layer : worker.layers) {
      const auto [at, fresh] = seen.try_emplace(layer.layer, layers.size());
      if (fresh)
        layers.push_back(layer);
      else if (layers[at->second].spec != layer.spec)
        return fail(KvPlanErrorCode::conflicting_specs,
                    "layer " + layer.layer + " has different specs on two workers");
    }
  }
  return layers;
}

// Sliding windows are not split over context-parallel ranks, and one rule of splitting must hold
// for every group.
PlanResult<void> check_context_parallel(const KvPlanInput& input,
                                        const std::vector<KvGroup>& groups) {
  if (input.decode_context_parallel * input.prefill_context_parallel == 1) return {};
  for (const KvGroup& group : groups)
    if (is_windowed(group.spec))
      return fail(KvPlanErrorCode::cp_with_sliding_window,
                  "context parallelism is not possible with sliding-window layers such as " +
                      group.layers.front());
  if (groups.size() > 1)
    return fail(KvPlanErrorCode::cp_with_several_groups,
                "context parallelism needs layers of one kind; this model has several");
  return {};
}

PlanResult<void> choose_kernel_blocks(const KvPlanInput& input, std::vector<KvGroup>& groups) {
  for (KvGroup& group : groups) {
    const KvKind kind = group.spec.kind;
    if (!is_attention(kind) || kind == KvKind::hidden_state) continue;
    const bool latent = kind == KvKind::mla || kind == KvKind::sliding_window_mla;
    const KernelSizes& sizes = latent ? input.latent_kernels : input.attention_kernels;
    const auto kernel = common_kernel_block_size(group.block_size, std::span(&sizes, 1));
    if (!kernel)
      return fail(
          KvPlanErrorCode::no_common_block_size,
          fmt::format(
              "no attention kernel reads blocks of {} tokens; use a CacheConfig::block_size "
              "that is a multiple of {}",
              group.block_size, preferred_block_size(sizes)));
    group.kernel_block_size = *kernel;
  }
  return {};
}

void make_workers(Planning& planning) {
  std::int64_t fewest = kUnlimited;
  for (const WorkerKvInput& input : planning.input.workers) {
    WorkerKvPlan& worker = planning.workers.emplace_back();
    worker.groups = project_groups(planning.groups, input.layers);
    worker.pool_bytes_per_block = pool_bytes_per_block(worker.groups, planning.groups);
    worker.available_bytes = input.available_bytes;
    worker.most_bytes = input.most_bytes;
    if (worker.pool_bytes_per_block == 0) continue;  // a stage without such layers
    fewest = std::min(fewest, planning.own_blocks(worker));
  }
  if (fewest != kUnlimited) planning.num_blocks = fewest;
}

// vLLM reports the smallest of all groups; blocks of states and compressor states are not those of
// attention, so these count only where there is nothing else.
int reported_block_size(const std::vector<KvGroup>& groups) {
  int attention = 0, any = 0;
  const auto smaller = [](int so_far, int size) {
    return so_far == 0 ? size : std::min(so_far, size);
  };
  for (const KvGroup& group : groups) {
    any = smaller(any, group.block_size);
    const KvKind kind = group.spec.kind;
    if (kind != KvKind::mamba && kind != KvKind::sliding_window_mla)
      attention = smaller(attention, group.block_size);
  }
  return attention != 0 ? attention : any;
}

PlanResult<void> choose_scheduler_sizes(const Planning& planning, KvPlan& plan) {
  const KvPlanInput& input = planning.input;
  const int ranks = input.decode_context_parallel * input.prefill_context_parallel;
  plan.block_size = reported_block_size(planning.groups);
  if (planning.groups.size() <= 1) {
    if (planning.groups.empty()) plan.block_size = input.cache_block_size;
    plan.scheduler_block_size = plan.hash_block_size = plan.block_size * ranks;
    return {};
  }
  std::int64_t common = 1, divisor = 0;
  int smallest = std::numeric_limits<int>::max();
  bool state_blocks_differ = false;
  for (const KvGroup& group : planning.groups) {
    common = std::lcm<std::int64_t>(common, group.block_size);
    divisor = std::gcd<std::int64_t>(divisor, group.block_size);
    smallest = std::min(smallest, group.block_size);
  }
  for (const KvGroup& group : planning.groups)
    state_blocks_differ |= group.spec.kind == KvKind::mamba && group.block_size != smallest;
  const bool hashes = input.enable_prefix_caching || input.kv_connector;
  constexpr int kMost = std::numeric_limits<int>::max();
  if (common > kMost && hashes)
    return fail(KvPlanErrorCode::invalid_input,
                "the block sizes of the groups have no common multiple below 2^31");
  // Without hashes nobody asks.
  plan.scheduler_block_size = plan.hash_block_size =
      static_cast<int>(std::min<std::int64_t>(common, kMost));
  if (!hashes || state_blocks_differ) return {};
  plan.hash_block_size = input.hash_block_size.value_or(static_cast<int>(divisor));
  if (plan.hash_block_size < 1 || divisor % plan.hash_block_size != 0)
    return fail(
        KvPlanErrorCode::invalid_hash_block_size,
        fmt::format(
            "CacheConfig::hash_block_size {} does not divide every group's block size; what "
            "works: {} or a divisor of it",
            plan.hash_block_size, divisor));
  return {};
}

void describe_capacity(const Planning& planning, KvPlan& plan) {
  const std::int64_t needed = planning.needed_blocks(plan.max_model_len);
  plan.largest_request_tokens = plan.max_model_len;
  if (planning.groups.empty()) return;
  plan.max_concurrency = static_cast<double>(plan.num_blocks) / static_cast<double>(needed);
  plan.kv_cache_size_tokens =
      static_cast<std::int64_t>(plan.max_concurrency * static_cast<double>(plan.max_model_len));
  // Beyond every block's worth of tokens only windows and states are left, which hold any length.
  int largest_block = 1;
  for (const KvGroup& group : planning.groups)
    largest_block = std::max(largest_block, group.block_size);
  plan.largest_request_tokens = planning.longest_request(
      plan.usable_blocks(), std::max(plan.max_model_len, plan.num_blocks * largest_block));
  for (WorkerKvPlan& worker : plan.workers) {
    worker.needed_blocks = needed;
    worker.needed_bytes = bytes_for(worker, needed);
    worker.tensors = pool_tensors(worker.groups, planning.groups, plan.num_blocks);
  }
}

}  // namespace

std::size_t WorkerKvPlan::total_bytes() const {
  std::size_t total = 0;
  for (const KvTensor& tensor : tensors) total += tensor.size;
  return total;
}

PlanResult<std::vector<KvGroup>> make_kv_groups(const KvPlanInput& input) {
  if (auto checked = check_input(input); checked.has_error()) return checked.error();
  auto layers = all_layers(input.workers);
  if (layers.has_error()) return layers.error();
  auto groups = make_groups(std::move(*layers), {input.hybrid_manager, input.use_eagle});
  if (groups.has_error()) return groups.error();
  if (auto checked = check_context_parallel(input, *groups); checked.has_error())
    return checked.error();
  if (auto chosen = choose_kernel_blocks(input, *groups); chosen.has_error()) return chosen.error();
  return groups;
}

PlanResult<KvPlan> make_kv_plan(const KvPlanInput& input) {
  const auto groups = make_kv_groups(input);
  if (groups.has_error()) return groups.error();
  return fit_kv_groups(input, *groups);
}

std::int64_t least_cache_bytes(const KvPlanInput& input, const std::vector<KvGroup>& groups) {
  Planning planning{.input = input, .groups = groups, .workers = {}};
  make_workers(planning);
  const std::int64_t length = input.auto_fit ? 1 : input.max_model_len;
  return groups.empty() ? 0 : bytes_for(planning.workers.front(), planning.blocks_for(length));
}

PlanResult<KvPlan> fit_kv_groups(const KvPlanInput& input, const std::vector<KvGroup>& groups) {
  Planning planning{.input = input, .groups = groups, .workers = {}};
  make_workers(planning);
  auto admitted = admit(planning);
  if (admitted.has_error()) return admitted.error();

  KvPlan plan{.num_blocks = planning.num_blocks, .max_model_len = *admitted, .workers = {}};
  if (auto chosen = choose_scheduler_sizes(planning, plan); chosen.has_error())
    return chosen.error();
  plan.workers = std::move(planning.workers);
  describe_capacity(planning, plan);
  return plan;
}

}  // namespace quire
