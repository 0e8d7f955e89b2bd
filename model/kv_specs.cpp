// What each layer of an architecture must remember between steps, from its config alone. Layers are
// named as vLLM names them, so that plans and KV events of the two can be compared.

#include <algorithm>
#include <string>

#include "model/registry.h"

namespace quire {

namespace {

int kv_heads_per_rank(const ModelConfig& config, const KvSpecOptions& options) {
  return std::max(1, config.num_kv_heads / options.tp_size);
}

// Recurrent states have dtypes of their own.
void set_cache_dtype(KvSpec& spec, const KvSpecOptions& options) {
  spec.dtype = options.cache_dtype;
  if (options.cache_dtype == DType::fp8_e4m3) spec.quant = KvQuant::fp8_per_tensor;
}

KvSpec attention_spec(const ModelConfig& config, const KvSpecOptions& options, int window) {
  KvSpec spec;
  spec.kind = window > 0 ? KvKind::sliding_window : KvKind::full;
  spec.num_kv_heads = kv_heads_per_rank(config, options);
  spec.head_size = config.head_dim;
  set_cache_dtype(spec, options);
  spec.sliding_window = window;
  return spec;
}

KvSpec mla_spec(const ModelConfig& config, const KvSpecOptions& options) {
  KvSpec spec;
  spec.kind = KvKind::mla;
  spec.num_kv_heads = 1;
  spec.head_size = config.mla.kv_lora_rank + config.mla.qk_rope_head_dim;
  set_cache_dtype(spec, options);
  return spec;
}

KvSpec state_spec(const ModelConfig& config, const KvSpecOptions& options,
                  std::int64_t conv_channels, int conv_kernel,
                  std::vector<std::int64_t> recurrent_shape) {
  const DType own = config.recurrent_state_dtype.value_or(options.conv_state_dtype);
  KvSpec spec;
  spec.kind = KvKind::mamba;
  spec.dtype = options.conv_state_dtype;
  spec.states = {
      {{conv_kernel - 1 + options.num_speculative_tokens, conv_channels}, options.conv_state_dtype},
      {std::move(recurrent_shape), options.recurrent_state_dtype.value_or(own)},
  };
  return spec;
}

KvSpec delta_net_spec(const ModelConfig& config, const KvSpecOptions& options) {
  const DeltaNetConfig& net = config.delta_net;
  const std::int64_t channels = 2 * std::int64_t{net.num_key_heads} * net.key_head_dim +
                                std::int64_t{net.num_value_heads} * net.value_head_dim;
  return state_spec(config, options, channels / options.tp_size, net.conv_kernel,
                    {net.num_value_heads / options.tp_size, net.key_head_dim, net.value_head_dim});
}

KvSpec mamba2_spec(const ModelConfig& config, const KvSpecOptions& options) {
  const Mamba2Config& mamba = config.mamba2;
  // A group that cannot be split is kept by every rank.
  const std::int64_t groups =
      mamba.num_groups % options.tp_size == 0 ? mamba.num_groups : options.tp_size;
  const std::int64_t channels =
      std::int64_t{mamba.num_heads} * mamba.head_dim + 2 * groups * mamba.state_size;
  return state_spec(config, options, channels / options.tp_size, mamba.conv_kernel,
                    {mamba.num_heads / options.tp_size, mamba.head_dim, mamba.state_size});
}

}  // namespace

std::vector<LayerKvSpec> kv_specs(const ModelConfig& config, const KvSpecOptions& options) {
  std::vector<LayerKvSpec> specs;
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    const bool latent = config.mla.kv_lora_rank > 0;
    switch (config.layer_types[i]) {
      case LayerType::full_attention:
        specs.push_back({layer + ".self_attn.attn",
                         latent ? mla_spec(config, options) : attention_spec(config, options, 0)});
        break;
      case LayerType::sliding_attention:
        specs.push_back(
            {layer + ".self_attn.attn", attention_spec(config, options, config.sliding_window)});
        break;
      case LayerType::linear_attention:
        specs.push_back({layer + ".linear_attn", delta_net_spec(config, options)});
        break;
      case LayerType::mamba:
        specs.push_back({layer + ".mixer", mamba2_spec(config, options)});
        break;
      case LayerType::mlp:
      case LayerType::moe:
        break;
    }
  }
  return specs;
}

}  // namespace quire
