#include <fmt/format.h>

#include <algorithm>

#include "engine/kv_plan/model_plan.h"
#include "engine/size_text.h"

namespace quire {
namespace {

Error refuse(std::string field, std::string why) {
  return {ErrorCode::invalid_argument, field + " " + why, field};
}

DType cache_dtype_of(const CacheConfig& cache, DType model, std::optional<DType> published) {
  return cache.cache_dtype.value_or(published.value_or(model));
}

// Shared by the phases of size_model.
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
  double state_padding_percent = 0;
  std::vector<std::string> notes = {};
  DType cache_dtype = DType::bf16;
};

Error no_effect(std::string field, std::string_view because) {
  return refuse(std::move(field), fmt::format("has no effect: {}; remove it", because));
}

Result<void> check_state_flags(const Sizing& sizing) {
  const CacheConfig& cache = sizing.config.cache;
  if (!sizing.has_states) {
    const std::string_view because = "the model keeps no recurrent state";
    if (cache.mamba_block_size) return no_effect("CacheConfig::mamba_block_size", because);
    if (cache.mamba_cache_mode) return no_effect("CacheConfig::mamba_cache_mode", because);
    if (cache.mamba_cache_dtype) return no_effect("CacheConfig::mamba_cache_dtype", because);
    if (cache.mamba_ssm_cache_dtype)
      return no_effect("CacheConfig::mamba_ssm_cache_dtype", because);
  }
  if (cache.mamba_cache_mode == StateCacheMode::none && cache.enable_prefix_caching)
    return refuse("CacheConfig::mamba_cache_mode",
                  "none keeps no recurrent state, so that prefix caching could never hit; use "
                  "another mode, or CacheConfig::enable_prefix_caching=false");
  if (!sizing.config.deterministic) return {};
  const auto rounds = [](std::optional<DType> dtype) { return dtype && *dtype != DType::f32; };
  constexpr const char* kWhy =
      "rounds states where a step ends; with EngineConfig::deterministic only float32";
  if (rounds(cache.mamba_cache_dtype)) return refuse("CacheConfig::mamba_cache_dtype", kWhy);
  if (rounds(cache.mamba_ssm_cache_dtype))
    return refuse("CacheConfig::mamba_ssm_cache_dtype", kWhy);
  return {};
}

Result<void> check_flags(const Sizing& sizing) {
  const CacheConfig& cache = sizing.config.cache;
  if (!sizing.has_attention && cache.cache_dtype)
    return no_effect("CacheConfig::cache_dtype", "the model has no attention");
  const auto& dtypes = sizing.kernels.cache_dtypes;
  if (std::find(dtypes.begin(), dtypes.end(), sizing.cache_dtype) == dtypes.end())
    return refuse(
        "CacheConfig::cache_dtype",
        fmt::format("{} is not what this device's kernels read", name_of(sizing.cache_dtype)));
  const bool one_kind =
      std::all_of(sizing.model.layers.begin(), sizing.model.layers.end(),
                  [&](auto& layer) { return layer.spec == sizing.model.layers.front().spec; });
  if (!cache.hybrid_manager && one_kind)
    return no_effect("CacheConfig::hybrid_manager=false", "all layers are of one kind");
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
                    .state_chunk = sizing.model.state_chunk,
                    .backend = backend});
  if (aligned.has_error()) return aligned.error();
  const int asked = sizing.config.cache.block_size;
  if (asked != 0 && aligned->block_size != asked)
    sizing.notes.push_back(fmt::format(
        "CacheConfig::block_size {} became {}: an attention page must hold a recurrent state of "
        "{}",
        asked, aligned->block_size,
        bytes_text(static_cast<std::int64_t>(page_bytes(first_of(sizing, false))))));
  sizing.block_size = aligned->block_size;
  sizing.states.block_size = aligned->mamba_block_size.value_or(sizing.states.block_size);
  sizing.state_page = aligned->mamba_page_size_padded;
  sizing.state_padding_percent = aligned->padding_percent;
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
  std::size_t widest = 0;  // of attention: beside a divided model's a whole draft's is wider
  for (LayerKvSpec& layer : layers) {
    if (layer.spec.kind == KvKind::mamba) continue;
    layer.spec.block_size = sizing.block_size;
    widest = std::max(widest, page_bytes(layer.spec));
  }
  for (LayerKvSpec& layer : layers) {
    if (layer.spec.kind != KvKind::mamba) continue;
    layer.spec.block_size = sizing.states.block_size;
    layer.spec.state_cache_mode = sizing.states.mode;
    layer.spec.page_size_padded = sizing.state_page.value_or(0);
    if (sizing.has_attention && page_bytes(layer.spec) < widest)
      layer.spec.page_size_padded = widest;
    layer.spec.num_speculative_blocks = sizing.config.speculative.num_speculative_tokens;
  }
  return layers;
}

KvPlanInput plan_input(const Sizing& sizing) {
  const EngineConfig& config = sizing.config;
  KvPlanInput input;
  input.workers.push_back({.layers = sized_layers(sizing)});
  input.max_model_len = sizing.max_model_len;
  input.auto_fit = config.model.max_model_len == kAutoFit;
  input.num_gpu_blocks_override = config.cache.num_gpu_blocks_override;
  input.max_num_batched_tokens = config.scheduler.max_num_batched_tokens;
  input.enable_prefix_caching = config.cache.enable_prefix_caching;
  input.hybrid_manager = config.cache.hybrid_manager;
  input.state_cache_mode = sizing.states.mode;
  input.cache_block_size = sizing.block_size;
  input.hash_block_size = config.cache.hash_block_size;
  input.use_eagle = config.speculative.uses_draft_model();
  input.attention_kernels = sizing.kernels.attention;
  input.latent_kernels = sizing.kernels.latent;
  return input;
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
  return refuse("ModelOptions::max_model_len",
                fmt::format("is {}, the model reaches {} tokens; use at most that, or -1", asked,
                            model_max_len));
}

std::int64_t longest_context(const EngineConfig& config, const ModelMemory& model) {
  if (config.model.max_model_len > 0) return config.model.max_model_len;
  const bool by_default = config.model.max_model_len != kAutoFit && model.default_max_len > 0;
  return by_default ? model.default_max_len : model.model_max_len;
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

Result<SizedModel> size_model(const EngineConfig& config, const ModelMemory& model,
                              DeviceKind device) {
  if (auto valid = validate(config); valid.has_error()) return valid.error();
  if (auto length = check_max_model_len(config, model.model_max_len); length.has_error())
    return length.error();
  Sizing sizing{.config = config, .model = model, .kernels = device_kernels(device)};
  for (const LayerKvSpec& layer : model.layers)
    (is_attention(layer.spec.kind) ? sizing.has_attention : sizing.has_states) = true;
  sizing.max_model_len = longest_context(config, model);
  sizing.cache_dtype = cache_dtype_of(config.cache, model.dtype, model.published_cache_dtype);
  for (const auto& phase : {check_state_flags, check_flags})
    if (auto checked = phase(sizing); checked.has_error()) return checked.error();
  if (auto chosen = choose_block_sizes(sizing); chosen.has_error()) return chosen.error();
  KvPlanInput input = plan_input(sizing);
  if (device == DeviceKind::cpu) input.sharers = num_sharers(config.parallel);
  auto groups = make_kv_groups(input);
  if (groups.has_error()) return to_error(groups.error());
  return SizedModel{.input = std::move(input),
                    .groups = std::move(*groups),
                    .has_states = sizing.has_states,
                    .state_chunk = model.state_chunk,
                    .state_cache_mode = sizing.states.mode,
                    .cache_dtype = sizing.cache_dtype,
                    .state_padding_percent = sizing.state_padding_percent,
                    .notes = std::move(sizing.notes)};
}

}  // namespace quire
