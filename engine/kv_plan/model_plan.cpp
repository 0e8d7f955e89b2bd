#include "engine/kv_plan/model_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/size_text.h"

namespace quire {
namespace {

// Of main memory, where nothing says how much: enough for 32k tokens of an 8B model, and no more
// than so many requests of full length can use, since all of it is taken at start-up.
constexpr std::int64_t kDefaultCpuCacheBytes = std::int64_t{4} << 30;
constexpr std::int64_t kDefaultCpuRequests = 16;

Error refuse(std::string flag, std::string why) {
  return {ErrorCode::invalid_argument, flag + " " + why, flag};
}

DType cache_dtype_of(const CacheConfig& cache, DType model, std::optional<DType> published) {
  return cache.cache_dtype.value_or(published.value_or(model));
}

// Shared by the phases of make_model_plan.
struct Sizing {
  const EngineConfig& config;
  const ModelMemory& model;
  const DeviceKernels& kernels;
  bool has_states = false;
  bool has_attention = false;
  std::int64_t max_model_len = 0;  // the most; with auto-fit the plan lowers it
  int block_size = 0;
  StateCacheChoice states = {};
  std::optional<std::size_t> state_page = {};
  ModelPlan plan = {};
};

Result<void> check_length(const Sizing& sizing) {
  return check_max_model_len(sizing.config, sizing.model.model_max_len);
}

Error no_effect(std::string flag, std::string_view because) {
  return refuse(std::move(flag), fmt::format("has no effect: {}; remove it", because));
}

Result<void> check_state_flags(const Sizing& sizing) {
  const CacheConfig& cache = sizing.config.cache;
  if (!sizing.has_states) {
    const std::string_view because = "the model keeps no recurrent state";
    if (cache.mamba_block_size) return no_effect("--mamba-block-size", because);
    if (cache.mamba_cache_mode) return no_effect("--mamba-cache-mode", because);
    if (cache.mamba_cache_dtype) return no_effect("--mamba-cache-dtype", because);
    if (cache.mamba_ssm_cache_dtype) return no_effect("--mamba-ssm-cache-dtype", because);
  }
  if (cache.mamba_cache_mode == StateCacheMode::none && cache.enable_prefix_caching)
    return refuse("--mamba-cache-mode",
                  "none keeps no recurrent state, so that prefix caching could never hit; use "
                  "another mode, or --no-enable-prefix-caching");
  if (!sizing.config.deterministic) return {};
  const auto rounds = [](std::optional<DType> dtype) { return dtype && *dtype != DType::f32; };
  constexpr const char* kWhy = "rounds states where a step ends; with --deterministic only float32";
  if (rounds(cache.mamba_cache_dtype)) return refuse("--mamba-cache-dtype", kWhy);
  if (rounds(cache.mamba_ssm_cache_dtype)) return refuse("--mamba-ssm-cache-dtype", kWhy);
  return {};
}

Result<void> check_flags(const Sizing& sizing) {
  const CacheConfig& cache = sizing.config.cache;
  if (!sizing.has_attention && cache.cache_dtype)
    return no_effect("--kv-cache-dtype", "the model has no attention");
  const auto& dtypes = sizing.kernels.cache_dtypes;
  if (std::find(dtypes.begin(), dtypes.end(), sizing.plan.cache_dtype) == dtypes.end())
    return refuse("--kv-cache-dtype", fmt::format("{} is not what this device's kernels read",
                                                  name_of(sizing.plan.cache_dtype)));
  const bool one_kind =
      std::all_of(sizing.model.layers.begin(), sizing.model.layers.end(),
                  [&](auto& layer) { return layer.spec == sizing.model.layers.front().spec; });
  if (!cache.hybrid_manager && one_kind)
    return no_effect("--disable-hybrid-kv-cache-manager", "all layers are of one kind");
  return {};
}

const KvSpec& first_of(const Sizing& sizing, bool attention) {
  return std::find_if(sizing.model.layers.begin(), sizing.model.layers.end(),
                      [&](auto& layer) { return is_attention(layer.spec.kind) == attention; })
      ->spec;
}

Result<void> choose_states(Sizing& sizing) {
  const StateCacheMode mode =
      sizing.config.cache.mamba_cache_mode.value_or(StateCacheMode::adaptive);
  const bool all = mode == StateCacheMode::all;  // a matter of where steps end: any model can
  if (all && !sizing.config.scheduler.enable_chunked_prefill) return states_need_chunks();
  const auto choice =
      choose_state_cache({.model_supports_all = all,
                          .enable_prefix_caching = sizing.config.cache.enable_prefix_caching,
                          .mode = mode,
                          .mamba_block_size = sizing.config.cache.mamba_block_size,
                          .block_size = sizing.block_size,
                          .max_model_len = sizing.max_model_len,
                          .chunked_prefill = sizing.config.scheduler.enable_chunked_prefill});
  if (choice.has_error()) return choice.error();
  sizing.states = *choice;
  sizing.plan.state_cache_mode = choice->mode;
  return {};
}

Result<void> align(Sizing& sizing, const KernelSizes& backend) {
  const auto aligned =
      align_hybrid({.attention_bytes_per_token = page_bytes(first_of(sizing, true)),
                    .state_bytes = page_bytes(first_of(sizing, false)),
                    .block_size = sizing.block_size,
                    .mode = sizing.states.mode,
                    .mamba_block_size = sizing.config.cache.mamba_block_size,
                    .mamba_chunk_size = sizing.model.mamba_chunk_size,
                    .backend = backend});
  if (aligned.has_error()) return aligned.error();
  const int asked = sizing.config.cache.block_size;
  if (asked != 0 && aligned->block_size != asked)
    sizing.plan.notes.push_back(
        fmt::format("--block-size {} became {}: an attention page must hold a recurrent state of "
                    "{}",
                    asked, aligned->block_size,
                    bytes_text(static_cast<std::int64_t>(page_bytes(first_of(sizing, false))))));
  sizing.block_size = aligned->block_size;
  sizing.states.block_size = aligned->mamba_block_size.value_or(sizing.states.block_size);
  sizing.state_page = aligned->mamba_page_size_padded;
  sizing.plan.state_padding_percent = aligned->padding_percent;
  return {};
}

Result<void> choose_block_sizes(Sizing& sizing) {
  const bool latent = sizing.has_attention && first_of(sizing, true).kind == KvKind::mla;
  const KernelSizes& backend = latent ? sizing.kernels.latent : sizing.kernels.attention;
  const int asked = sizing.config.cache.block_size;
  sizing.block_size = asked != 0 ? asked : preferred_block_size(backend);
  if (!sizing.has_states) return {};
  if (auto chosen = choose_states(sizing); chosen.has_error()) return chosen;
  return sizing.has_attention ? align(sizing, backend) : Result<void>{};
}

std::vector<LayerKvSpec> sized_layers(const Sizing& sizing) {
  std::vector<LayerKvSpec> layers = sizing.model.layers;
  for (LayerKvSpec& layer : layers) {
    const bool state = layer.spec.kind == KvKind::mamba;
    layer.spec.block_size = state ? sizing.states.block_size : sizing.block_size;
    if (!state) continue;
    layer.spec.state_cache_mode = sizing.states.mode;
    layer.spec.page_size_padded = sizing.state_page.value_or(0);
  }
  return layers;
}

KvPlanInput plan_input(const Sizing& sizing, std::int64_t available_bytes) {
  const EngineConfig& config = sizing.config;
  KvPlanInput input;
  input.workers.push_back({sized_layers(sizing), available_bytes});
  input.max_model_len = sizing.max_model_len;
  input.auto_fit = config.model.max_model_len == kAutoFit;
  input.num_gpu_blocks_override = config.cache.num_gpu_blocks_override;
  input.max_num_batched_tokens = config.scheduler.max_num_batched_tokens;
  input.enable_prefix_caching = config.cache.enable_prefix_caching;
  input.hybrid_manager = config.cache.hybrid_manager;
  input.state_cache_mode = sizing.states.mode;
  input.cache_block_size = sizing.block_size;
  input.hash_block_size = config.cache.hash_block_size;
  input.attention_kernels = sizing.kernels.attention;
  input.latent_kernels = sizing.kernels.latent;
  return input;
}

// A state that is never cached has one block per request, whatever the length it fits.
void shrink_state_blocks(KvPlanInput& input, std::int64_t max_model_len) {
  input.auto_fit = false;
  input.max_model_len = max_model_len;
  for (WorkerKvInput& worker : input.workers)
    for (LayerKvSpec& layer : worker.layers)
      if (layer.spec.kind == KvKind::mamba) layer.spec.block_size = static_cast<int>(max_model_len);
}

std::optional<StateCheckpoint> checkpoint_of(const Sizing& sizing) {
  if (!sizing.has_states || sizing.states.mode == StateCacheMode::none) return std::nullopt;
  const KvPlan& plan = sizing.plan.kv;
  const WorkerKvPlan& worker = plan.workers.front();
  StateCheckpoint checkpoint;
  for (const KvGroup& group : plan.groups())
    checkpoint.num_blocks += group.spec.kind == KvKind::mamba;
  checkpoint.bytes = checkpoint.num_blocks * static_cast<std::int64_t>(worker.pool_bytes_per_block);
  const std::int64_t usable = plan.num_blocks - 1;
  checkpoint.num_in_pool = usable / checkpoint.num_blocks;
  checkpoint.num_beside_request = (usable - worker.needed_blocks) / checkpoint.num_blocks;
  return checkpoint;
}

// A hit is whole blocks of a prompt, of which a token is left over, as is room for the answer's.
Result<void> check_hits(Sizing& sizing) {
  const KvPlan& plan = sizing.plan.kv;
  if (!sizing.config.cache.enable_prefix_caching || plan.groups().empty()) return {};
  if (plan.scheduler_block_size + 2 <= plan.max_model_len) return {};
  const std::string reason = fmt::format(
      "prefix caching can never hit: a block holds {} tokens, and the longest prompt "
      "has {} with one to compute; use a --max-model-len of at least {}, or "
      "--no-enable-prefix-caching",
      plan.scheduler_block_size, plan.max_model_len - 1, plan.scheduler_block_size + 2);
  if (sizing.config.cache.mamba_cache_mode)
    return refuse("--mamba-cache-mode", "has no effect: " + reason);
  sizing.plan.notes.push_back(reason);
  return {};
}

Result<void> check_result(const Sizing& sizing, std::int64_t available_bytes) {
  const EngineConfig& config = sizing.config;
  const KvPlan& plan = sizing.plan.kv;
  const auto total = static_cast<std::int64_t>(plan.workers.front().total_bytes());
  if (config.cache.num_gpu_blocks_override && total > available_bytes)
    return refuse("--num-gpu-blocks-override",
                  fmt::format("{} needs {}, there is {}; use at most {}", plan.num_blocks,
                              bytes_text(total), bytes_text(available_bytes),
                              available_bytes / static_cast<std::int64_t>(
                                                    plan.workers.front().pool_bytes_per_block)));
  if (!config.scheduler.enable_chunked_prefill &&
      config.scheduler.max_num_batched_tokens < plan.max_model_len)
    return refuse("--no-enable-chunked-prefill",
                  fmt::format("computes a prompt in one step, so --max-num-batched-tokens must be "
                              "at least max_model_len ({}), not {}",
                              plan.max_model_len, config.scheduler.max_num_batched_tokens));
  return validate_block_size(
      plan.block_size,
      {.mode = sizing.states.mode,
       .max_num_batched_tokens = config.scheduler.max_num_batched_tokens,
       .long_prefill_token_threshold = config.scheduler.long_prefill_token_threshold});
}

}  // namespace

// Both backends' attention takes any block size at run time; 16 keeps a tile's rows in one block.
const DeviceKernels& device_kernels(DeviceKind) {
  static const DeviceKernels kKernels = {
      .attention = {{16, true}},
      .latent = {{16, true}},
      .cache_dtypes = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3}};
  return kKernels;
}

Result<void> check_max_model_len(const EngineConfig& config, std::int64_t model_max_len) {
  const std::int64_t asked = config.model.max_model_len;
  if (asked <= model_max_len) return {};
  return refuse("--max-model-len",
                fmt::format("is {}, the model was made for {} tokens; use at most that, or -1",
                            asked, model_max_len));
}

KvSpecOptions kv_spec_options(const EngineConfig& config, DType model_dtype,
                              std::optional<DType> published_cache_dtype) {
  const CacheConfig& cache = config.cache;
  // A state is rounded where a step ends: with fewer bits, answers would depend on where that is.
  const auto exact = config.deterministic ? std::optional(DType::f32) : std::nullopt;
  return {.cache_dtype = cache_dtype_of(cache, model_dtype, published_cache_dtype),
          .conv_state_dtype = cache.mamba_cache_dtype.value_or(model_dtype),
          .recurrent_state_dtype = exact ? exact : cache.mamba_ssm_cache_dtype};
}

std::int64_t longest_request_bytes(const EngineConfig& config, const ModelMemory& model) {
  constexpr std::int64_t kStates = 4;  // running, its checkpoints, what alignment pads
  const std::int64_t asked = config.model.max_model_len;
  const std::int64_t tokens =
      asked > 0 ? std::min(asked, model.model_max_len) : model.model_max_len;
  std::int64_t bytes = 0;
  for (const LayerKvSpec& layer : model.layers)
    bytes += static_cast<std::int64_t>(page_bytes(layer.spec)) *
             (is_attention(layer.spec.kind) ? tokens : kStates);
  return bytes;
}

std::int64_t allowed_bytes(const EngineConfig& config, DeviceKind device,
                           std::int64_t total_bytes) {
  const auto share = config.cache.gpu_memory_utilization;
  if (config.cache.kv_cache_memory_bytes > 0 || (device == DeviceKind::cpu && !share))
    return total_bytes;
  return static_cast<std::int64_t>(share.value_or(kDefaultUtilization) *
                                   static_cast<double>(total_bytes));
}

std::int64_t kv_cache_budget(const EngineConfig& config, DeviceKind device,
                             const DeviceBudget& budget) {
  if (config.cache.kv_cache_memory_bytes > 0) return config.cache.kv_cache_memory_bytes;
  if (device == DeviceKind::cpu && !config.cache.gpu_memory_utilization) {
    const std::int64_t most = std::min(kDefaultCpuCacheBytes, budget.total_bytes / 4);
    return budget.request_bytes > 0 ? std::min(most, kDefaultCpuRequests * budget.request_bytes)
                                    : most;
  }
  return allowed_bytes(config, device, budget.total_bytes) - budget.other_bytes;
}

namespace {

// Block sizes and state cache, after all flags were checked.
Result<Sizing> size_blocks(const EngineConfig& config, const ModelMemory& model,
                           DeviceKind device) {
  if (auto valid = validate(config); valid.has_error()) return valid.error();
  Sizing sizing{.config = config, .model = model, .kernels = device_kernels(device)};
  for (const LayerKvSpec& layer : model.layers)
    (is_attention(layer.spec.kind) ? sizing.has_attention : sizing.has_states) = true;
  sizing.max_model_len =
      config.model.max_model_len > 0 ? config.model.max_model_len : model.model_max_len;
  sizing.plan.cache_dtype = cache_dtype_of(config.cache, model.dtype, model.published_cache_dtype);
  for (const auto& phase : {check_length, check_state_flags, check_flags})
    if (auto checked = phase(sizing); checked.has_error()) return checked.error();
  if (auto chosen = choose_block_sizes(sizing); chosen.has_error()) return chosen.error();
  return sizing;
}

}  // namespace

Result<KvPlan> plan_without_blocks(const EngineConfig& config, const ModelMemory& model,
                                   DeviceKind device) {
  const auto sizing = size_blocks(config, model, device);
  if (sizing.has_error()) return sizing.error();
  auto groups = make_kv_groups(plan_input(*sizing, 0));
  if (groups.has_error()) return to_error(groups.error());
  KvPlan plan{.max_model_len = sizing->max_model_len};
  plan.workers.emplace_back().groups = std::move(*groups);
  return plan;
}

Result<ModelPlan> make_model_plan(const EngineConfig& config, const ModelMemory& model,
                                  DeviceKind device, std::int64_t available_bytes) {
  auto sized = size_blocks(config, model, device);
  if (sized.has_error()) return sized.error();
  Sizing& sizing = *sized;
  KvPlanInput input = plan_input(sizing, available_bytes);
  auto plan = make_kv_plan(input);
  if (plan.has_value() && plan->max_model_len < input.max_model_len && sizing.has_states &&
      sizing.states.mode == StateCacheMode::none) {
    shrink_state_blocks(input, plan->max_model_len);
    plan = make_kv_plan(input);
  }
  if (plan.has_error()) return to_error(plan.error());
  sizing.plan.kv = std::move(*plan);
  if (auto checked = check_result(sizing, available_bytes); checked.has_error())
    return checked.error();
  if (auto checked = check_hits(sizing); checked.has_error()) return checked.error();
  sizing.plan.checkpoint = checkpoint_of(sizing);
  return std::move(sizing.plan);
}

}  // namespace quire
