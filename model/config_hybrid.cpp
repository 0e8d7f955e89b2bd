#include <algorithm>
#include <limits>

#include "model/arch/architectures.h"
#include "model/config_parts.h"

namespace quire {

namespace {

void parse_delta_net_hybrid(ModelConfig& config, const Json& text) {
  const int interval = text.integer({"full_attention_interval"}, kLayers).value_or(4);
  if (!parse_layer_types(config, text, LayerType::linear_attention)) {
    fill_layer_types(config, LayerType::linear_attention, LayerType::full_attention,
                     [&](int i) { return (i + 1) % interval == 0; });
  }
  config.qk_norm = true;
  config.delta_net = {
      .num_key_heads = text.need_integer({"linear_num_key_heads"}, kHeads),
      .num_value_heads = text.need_integer({"linear_num_value_heads"}, kHeads),
      .key_head_dim = text.need_integer({"linear_key_head_dim"}, kWidth),
      .value_head_dim = text.need_integer({"linear_value_head_dim"}, kWidth),
      .conv_kernel = text.integer({"linear_conv_kernel_dim"}, {2, 64}).value_or(4),
  };
  if (config.delta_net.num_value_heads % config.delta_net.num_key_heads != 0) {
    text.fail_at("linear_num_key_heads", "must divide linear_num_value_heads");
  }
  if (text.integer({"num_experts"}, {0, kExperts.max}).value_or(0) > 0) {
    parse_experts(config, text);
    parse_expert_layers(config, text);
  }
}

// The state is float32 unless the file says otherwise; Qwen3-Next's is of the model's dtype.
void parse_qwen3_5_state(ModelConfig& config, const Json& text) {
  config.recurrent_state_dtype =
      text.text({"mamba_ssm_dtype"}).value_or("float32") == "bfloat16" ? DType::bf16 : DType::f32;
}

void check_mamba(const Mamba2Config& mamba, const Json& text) {
  if (mamba.num_heads % mamba.num_groups != 0) {
    text.fail_at("n_groups", "must divide the " + std::to_string(mamba.num_heads) + " Mamba heads");
  }
  if (mamba.head_dim < 1) text.fail_at("mamba_d_head", "must be at least 1");
}

void parse_time_step_limit(Mamba2Config& mamba, const Json& text) {
  const auto limit = text.numbers({"time_step_limit"});
  if (limit && limit->size() != 2) text.fail_at("time_step_limit", "must have two entries");
  mamba.time_step_min = limit ? (*limit)[0] : 0.0;
  mamba.time_step_max = limit ? (*limit)[1] : std::numeric_limits<double>::infinity();
}

}  // namespace

void parse_qwen3_next(ModelConfig& config, const Json& text) {
  parse_delta_net_hybrid(config, text);
  config.delta_net.fused_inputs = true;
}

void parse_qwen3_5(ModelConfig& config, const Json& text) {
  parse_delta_net_hybrid(config, text);
  parse_qwen3_5_state(config, text);
}

void parse_qwen3_5_moe(ModelConfig& config, const Json& text) {
  parse_delta_net_hybrid(config, text);
  parse_qwen3_5_state(config, text);
}

void parse_granite(ModelConfig& config, const Json& text) {
  config.attention_scale = text.number({"attention_multiplier"}).value_or(1.0);
  config.embedding_multiplier = text.number({"embedding_multiplier"}).value_or(1.0);
  config.residual_multiplier = text.number({"residual_multiplier"}).value_or(1.0);
  config.logits_divisor = text.number({"logits_scaling"}).value_or(1.0);
}

void parse_granite_hybrid(ModelConfig& config, const Json& text) {
  parse_granite(config, text);
  if (!parse_layer_types(config, text, LayerType::mamba)) {
    text.fail_at("layer_types", "is missing");
  }
  if (text.integer({"num_local_experts"}, {0, kExperts.max}).value_or(0) > 0) {
    parse_experts(config, text);
    parse_expert_layers(config, text);
  }
  config.moe.shared_intermediate_size = text.need_integer({"shared_intermediate_size"}, kWidth);
  const int width = text.need_integer({"mamba_expand"}, {1, 64}) * config.hidden_size;
  Mamba2Config& mamba = config.mamba2;
  mamba.num_heads = text.need_integer({"mamba_n_heads"}, kHeads);
  mamba.head_dim = text.find({"mamba_d_head"}) && !text.find({"mamba_d_head"})->is_string()
                       ? text.need_integer({"mamba_d_head"}, kWidth)
                       : width / mamba.num_heads;  // "auto"
  mamba.state_size = text.need_integer({"mamba_d_state"}, kWidth);
  mamba.num_groups = text.need_integer({"mamba_n_groups"}, kHeads);
  mamba.conv_kernel = text.need_integer({"mamba_d_conv"}, {2, 64});
  mamba.chunk_size = text.need_integer({"mamba_chunk_size"}, kTokens);
  mamba.conv_bias = text.boolean({"mamba_conv_bias"}).value_or(true);
  mamba.proj_bias = text.boolean({"mamba_proj_bias"}).value_or(false);
  parse_time_step_limit(mamba, text);
  check_mamba(mamba, text);
  if (text.text({"position_embedding_type"}) != "rope") config.rope.kind = RopeKind::none;
}

namespace {

void parse_nemotron_pattern(ModelConfig& config, const Json& text) {
  const auto pattern = text.text({"hybrid_override_pattern"});
  if (!pattern) text.fail_at("hybrid_override_pattern", "is missing");
  if (static_cast<int>(pattern->size()) != config.num_layers) {
    text.fail_at("hybrid_override_pattern", "has " + std::to_string(pattern->size()) +
                                                " layers, num_hidden_layers is " +
                                                std::to_string(config.num_layers));
  }
  for (const char c : *pattern) {
    config.layer_types.push_back(c == 'M'   ? LayerType::mamba
                                 : c == '*' ? LayerType::full_attention
                                 : c == '-' ? LayerType::mlp
                                            : LayerType::moe);
    if (std::string_view("M*-E").find(c) == std::string_view::npos) {
      text.fail_at("hybrid_override_pattern", std::string("has an unknown layer '") + c + "'");
    }
  }
}

}  // namespace

void parse_nemotron(ModelConfig& config, const Json& text) {
  if (!parse_layer_types(config, text, LayerType::mamba)) parse_nemotron_pattern(config, text);
  const auto& types = config.layer_types;
  if (std::find(types.begin(), types.end(), LayerType::moe) != types.end()) {
    parse_experts(config, text);
    config.moe.score = RouterScore::sigmoid;
    config.moe.latent_size = text.integer({"moe_latent_size"}, kWidth).value_or(0);
  }
  config.moe.layers.resize(config.num_layers);
  for (int i = 0; i < config.num_layers; ++i) {
    config.moe.layers[i] = types[i] == LayerType::moe;
  }
  config.rope.kind = RopeKind::none;
  // Other fields of that kind are not the class's.
  config.rms_norm_eps = text.number({"layer_norm_epsilon"}).value_or(config.rms_norm_eps);
  if (!(config.rms_norm_eps >= 0)) text.fail_at("layer_norm_epsilon", "must not be negative");
  const std::string act = text.text({"mamba_hidden_act"}).value_or("silu");
  if (act != "silu" && act != "swish")
    text.fail_at("mamba_hidden_act", "\"" + act + "\" is not supported (silu)",
                 ErrorCode::unsupported);
  Mamba2Config& mamba = config.mamba2;
  mamba.num_heads = text.need_integer({"mamba_num_heads"}, kHeads);
  mamba.head_dim = text.need_integer({"mamba_head_dim"}, kWidth);
  mamba.state_size = text.need_integer({"ssm_state_size"}, kWidth);
  mamba.num_groups = text.need_integer({"n_groups"}, kHeads);
  mamba.conv_kernel = text.need_integer({"conv_kernel"}, {2, 64});
  mamba.chunk_size = text.need_integer({"chunk_size"}, kTokens);
  mamba.conv_bias = text.boolean({"use_conv_bias"}).value_or(true);
  mamba.proj_bias = text.boolean({"use_bias", "mamba_proj_bias"}).value_or(false);
  parse_time_step_limit(mamba, text);
  // The reference clamps dt from below by what the weights were initialised with.
  mamba.time_step_min = text.number({"time_step_min"}).value_or(0.001);
  check_mamba(mamba, text);
  const std::string dtype = text.text({"mamba_ssm_cache_dtype"}).value_or("float32");
  config.recurrent_state_dtype = dtype == "bfloat16"  ? DType::bf16
                                 : dtype == "float16" ? DType::f16
                                                      : DType::f32;
}

}  // namespace quire
