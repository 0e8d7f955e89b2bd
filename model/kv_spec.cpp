#include "model/kv_spec.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

// DeepSeek's packed fp8 latent: 512 fp8 + 4 scales f32 + 64 rope bf16; in version 4 448 fp8 + 64
// rope bf16 + 7 scales and one byte of padding.
constexpr std::size_t kFp8LatentBytes = 656;
constexpr std::size_t kFp8LatentBytesV4 = 584;

std::int64_t cdiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::size_t round_up(std::size_t bytes, std::size_t to) {
  return to == 0 ? bytes : (bytes + to - 1) / to * to;
}

std::size_t head_bytes(const KvSpec& spec, int head_size) {
  const auto elements = static_cast<std::size_t>(head_size);
  if (spec.quant == KvQuant::nvfp4) return elements / 2 + elements / 16;  // nibbles and scales
  return elements * size_of(spec.dtype);
}

// One for K and one for V of every token and head.
std::size_t scale_bytes(const KvSpec& spec) {
  const bool scaled =
      spec.quant == KvQuant::int8_per_token_head || spec.quant == KvQuant::fp8_per_token_head;
  return scaled ? 2 * sizeof(float) * spec.block_size * spec.num_kv_heads : 0;
}

std::size_t attention_page_bytes(const KvSpec& spec) {
  const int value_size = spec.head_size_v > 0 ? spec.head_size_v : spec.head_size;
  const auto rows = static_cast<std::size_t>(spec.block_size) * spec.num_kv_heads;
  return rows * (head_bytes(spec, spec.head_size) + head_bytes(spec, value_size)) +
         scale_bytes(spec);
}

std::size_t latent_page_bytes(const KvSpec& spec) {
  const auto stored = static_cast<std::size_t>(storage_block_size(spec));
  const bool v4 = spec.mla_version == MlaVersion::deepseek_v4;
  if (spec.kind == KvKind::sliding_window_mla && v4) return stored * kFp8LatentBytesV4;
  if (spec.mla_format == MlaFormat::fp8_ds_mla)
    return v4 ? stored * kFp8LatentBytesV4
              : static_cast<std::size_t>(spec.block_size) * kFp8LatentBytes;
  return stored * spec.num_kv_heads * spec.head_size * size_of(spec.dtype) + scale_bytes(spec);
}

std::size_t state_bytes(const KvSpec& spec) {
  std::size_t total = 0;
  for (const StateTensor& state : spec.states) {
    std::size_t bytes = size_of(state.dtype);
    for (const std::int64_t extent : state.shape) bytes *= static_cast<std::size_t>(extent);
    total += bytes;
  }
  return total;
}

std::int64_t max_state_blocks(const KvSpec& spec, const KvLimits& limits) {
  switch (limits.state_cache_mode) {
    case StateCacheMode::all:
      return cdiv(limits.max_model_len, spec.block_size) + spec.num_speculative_blocks;
    case StateCacheMode::align:
    case StateCacheMode::adaptive:
      return 2 + spec.num_speculative_blocks;
    case StateCacheMode::none:
      break;
  }
  return 1 + spec.num_speculative_blocks;
}

// The single value that the layers which have one agree on; false: they do not agree.
bool merge_value(std::span<const KvSpec> layers, int KvSpec::*field, int& merged) {
  merged = 0;
  for (const KvSpec& layer : layers) {
    const int value = layer.*field;
    if (value == 0) continue;
    if (merged != 0 && merged != value) return false;
    merged = value;
  }
  return true;
}

MergedSpec merge_full(std::span<const KvSpec> layers) {
  KvSpec merged = layers.front();
  bool agree = merge_value(layers, &KvSpec::sliding_window, merged.sliding_window);
  agree &= merge_value(layers, &KvSpec::attention_chunk_size, merged.attention_chunk_size);
  for (KvSpec layer : layers) {
    layer.sliding_window = merged.sliding_window;
    layer.attention_chunk_size = merged.attention_chunk_size;
    if (layer != merged) return {};
  }
  if (!agree) return {.spec = {}, .window_conflict = true};
  if (merged.sliding_window != 0 && merged.attention_chunk_size != 0) return {};
  return {.spec = merged};
}

// Latents of one block size and packing: all get the largest page of them, as vLLM has it.
MergedSpec merge_latent(std::span<const KvSpec> layers) {
  const KvSpec* largest = &layers.front();
  for (const KvSpec& layer : layers) {
    if (layer.kind != largest->kind || layer.block_size != largest->block_size ||
        layer.mla_format != largest->mla_format || layer.mla_version != largest->mla_version ||
        layer.compress_ratio != largest->compress_ratio ||
        layer.sliding_window != largest->sliding_window)
      return {};
    if (page_bytes(layer) > page_bytes(*largest)) largest = &layer;
  }
  return {.spec = *largest};
}

}  // namespace

int storage_block_size(const KvSpec& spec) { return spec.block_size / spec.compress_ratio; }

std::size_t unpadded_page_bytes(const KvSpec& spec) {
  switch (spec.kind) {
    case KvKind::mla:
    case KvKind::sliding_window_mla:
    case KvKind::hidden_state:
      return latent_page_bytes(spec);
    case KvKind::mamba:
      return state_bytes(spec);
    default:
      return attention_page_bytes(spec);
  }
}

std::size_t page_bytes(const KvSpec& spec) {
  const std::size_t bytes = unpadded_page_bytes(spec);
  assert(spec.page_size_padded == 0 || spec.page_size_padded >= bytes);
  return spec.page_size_padded != 0 ? spec.page_size_padded : round_up(bytes, spec.alignment);
}

std::int64_t max_blocks_per_request(const KvSpec& spec, const KvLimits& limits) {
  const std::int64_t length = limits.max_model_len;
  const std::int64_t step = limits.max_num_batched_tokens;
  switch (spec.kind) {
    case KvKind::sliding_window:
    case KvKind::sliding_window_mla:
      // One more, because the window may begin in the middle of a block.
      return cdiv(std::min(spec.sliding_window - 1 + step, length), spec.block_size) + 1;
    case KvKind::chunked_local:
      return cdiv(std::min(spec.attention_chunk_size + step, length), spec.block_size);
    case KvKind::mamba:
      return max_state_blocks(spec, limits);
    case KvKind::encoder_only:
      return 0;
    default:
      return cdiv(cdiv(length, limits.context_parallel), spec.block_size);
  }
}

MergedSpec merge(std::span<const KvSpec> layers) {
  const KvSpec& first = layers.front();
  if (first.kind == KvKind::full) return merge_full(layers);
  if (first.kind == KvKind::mla || first.kind == KvKind::sliding_window_mla)
    return merge_latent(layers);
  const bool equal = std::all_of(layers.begin(), layers.end(),
                                 [&](const KvSpec& layer) { return layer == first; });
  return equal ? MergedSpec{.spec = first} : MergedSpec{};
}

bool is_attention(KvKind kind) { return kind != KvKind::mamba; }

bool is_windowed(const KvSpec& spec) {
  return spec.kind == KvKind::sliding_window || spec.kind == KvKind::sliding_window_mla ||
         spec.kind == KvKind::chunked_local;
}

std::string_view kind_name(KvKind kind) {
  switch (kind) {
    case KvKind::full:
      return "full_attention";
    case KvKind::sliding_window:
      return "sliding_window";
    case KvKind::chunked_local:
      return "chunked_local_attention";
    case KvKind::mla:
    case KvKind::hidden_state:
      return "mla_attention";
    case KvKind::sliding_window_mla:
      return "sliding_window_mla";
    case KvKind::mamba:
      return "mamba";
    case KvKind::cross_attention:
      return "cross_attention";
    case KvKind::encoder_only:
      return "encoder_only_attention";
  }
  return "unknown";
}

std::string_view name_of(StateCacheMode mode) {
  switch (mode) {
    case StateCacheMode::none:
      return "none";
    case StateCacheMode::all:
      return "all";
    case StateCacheMode::align:
      return "align";
    case StateCacheMode::adaptive:
      return "adaptive";
  }
  return "unknown";
}

bool moves_state(StateCacheMode mode) {
  return mode == StateCacheMode::align || mode == StateCacheMode::adaptive;
}

}  // namespace quire
