#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/config_parts.h"

namespace quire {

namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

LayerType layer_type_of(const Fields& text, const std::string& name, LayerType recurrent) {
  if (is_one_of(name, {"full_attention", "attention"})) return LayerType::full_attention;
  if (name == "sliding_attention") return LayerType::sliding_attention;
  if (name == "linear_attention") return recurrent;
  if (name == "mamba") return LayerType::mamba;
  if (name == "mlp") return LayerType::mlp;
  if (name == "moe") return LayerType::moe;
  text.fail("layer_types", "\"" + name + "\" is not supported", ErrorCode::unsupported);
}

// layer_types as published; false where the file has none.
bool parse_layer_types(ModelConfig& config, const Fields& text, LayerType recurrent) {
  const auto names = text.texts({"layer_types", "layers_block_type"});
  if (!names) return false;
  if (static_cast<int>(names->size()) != config.num_layers) {
    text.fail("layer_types", "has " + std::to_string(names->size()) + " entries for " +
                                 std::to_string(config.num_layers) + " layers");
  }
  for (const std::string& name : *names) {
    config.layer_types.push_back(layer_type_of(text, name, recurrent));
  }
  return true;
}

template <class IsOther>
void fill_layer_types(ModelConfig& config, LayerType usual, LayerType other, IsOther is_other) {
  for (int i = 0; i < config.num_layers; ++i) {
    config.layer_types.push_back(is_other(i) ? other : usual);
  }
}

void parse_sliding(ModelConfig& config, const Fields& text) {
  const auto window = text.integer({"sliding_window"}, kTokens);
  const auto full = LayerType::full_attention, sliding = LayerType::sliding_attention;
  // Qwen publishes a window that a second field switches off.
  const bool qwen = config.architecture.starts_with("Qwen");
  const bool windowed = window && text.boolean({"use_sliding_window"}).value_or(!qwen);
  config.sliding_window = window.value_or(0);
  if (!parse_layer_types(config, text, LayerType::linear_attention)) {
    const int first = qwen ? text.integer({"max_window_layers"}, {0, 1 << 12}).value_or(28) : 0;
    const bool all = config.architecture == "Qwen3MoeForCausalLM";
    fill_layer_types(config, full, sliding, [&](int i) { return windowed && (all || i >= first); });
  }
}

// Local and global layers in turn: every `period`th is global.
void parse_alternating(ModelConfig& config, const Fields& text, int period) {
  config.sliding_window = text.need_integer({"sliding_window"}, kTokens);
  if (!parse_layer_types(config, text, LayerType::linear_attention)) {
    fill_layer_types(config, LayerType::sliding_attention, LayerType::full_attention,
                     [&](int i) { return (i + 1) % period == 0; });
  }
}

void parse_gemma(ModelConfig& config, const Fields& text) {
  const bool third = config.architecture.starts_with("Gemma3");
  parse_alternating(
      config, text,
      third ? text.integer({"sliding_window_pattern", "_sliding_window_pattern"}).value_or(6) : 2);
  config.qk_norm = third;
  const double scalar = text.number({"query_pre_attn_scalar"}).value_or(config.head_dim);
  if (!(scalar > 0)) text.fail("query_pre_attn_scalar", "must be above 0");
  config.attention_scale = 1.0 / std::sqrt(scalar);
  config.attention_soft_cap = text.number({"attn_logit_softcapping"}).value_or(0.0);
  config.logits_soft_cap = text.number({"final_logit_softcapping"}).value_or(0.0);
  config.embedding_multiplier = std::sqrt(double(config.hidden_size));
  if (text.boolean({"use_bidirectional_attention"}).value_or(false)) {
    text.fail("use_bidirectional_attention", "is not supported", ErrorCode::unsupported);
  }
}

void parse_granite(ModelConfig& config, const Fields& text) {
  config.attention_scale = text.number({"attention_multiplier"}).value_or(1.0);
  config.embedding_multiplier = text.number({"embedding_multiplier"}).value_or(1.0);
  config.residual_multiplier = text.number({"residual_multiplier"}).value_or(1.0);
  config.logits_divisor = text.number({"logits_scaling"}).value_or(1.0);
}

void parse_experts(ModelConfig& config, const Fields& text) {
  MoeConfig& moe = config.moe;
  moe.num_experts =
      text.need_integer({"num_experts", "num_local_experts", "n_routed_experts"}, kExperts);
  moe.num_experts_per_tok = text.need_integer({"num_experts_per_tok"}, {1, moe.num_experts});
  moe.intermediate_size =
      text.integer({"moe_intermediate_size"}, kWidth).value_or(config.intermediate_size);
  if (moe.intermediate_size == 0) text.fail("moe_intermediate_size", "is missing");
  moe.norm_topk_prob = text.boolean({"norm_topk_prob"}).value_or(true);
  moe.routed_scaling_factor = text.number({"routed_scaling_factor"}).value_or(1.0);
  moe.n_group = text.integer({"n_group"}, kExperts).value_or(1);
  moe.topk_group = text.integer({"topk_group"}, {1, moe.n_group}).value_or(1);
  if (moe.num_experts % moe.n_group != 0) {
    text.fail("n_group", "must divide the " + std::to_string(moe.num_experts) + " experts");
  }
  moe.num_shared_experts = text.integer({"n_shared_experts"}, {0, 64}).value_or(0);
  moe.shared_intermediate_size =
      text.integer({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
                   {0, kWidth.max})
          .value_or(moe.num_shared_experts * moe.intermediate_size);
}

// Experts in every `step`th layer from `first` on, but in none of mlp_only_layers.
void parse_expert_layers(ModelConfig& config, const Fields& text) {
  const int first = text.integer({"first_k_dense_replace"}, {0, 1 << 12}).value_or(0);
  const int step = text.integer({"decoder_sparse_step", "moe_layer_freq"}, kLayers).value_or(1);
  // Qwen counts layers from one, DeepSeek from zero.
  const int offset = text.has({"decoder_sparse_step"}) ? 1 : 0;
  const auto dense = text.integers({"mlp_only_layers"}, {0, 1 << 12});
  config.moe.layers.resize(config.num_layers);
  for (int i = 0; i < config.num_layers; ++i) {
    config.moe.layers[i] = i >= first && (i + offset) % step == 0 &&
                           std::find(dense.begin(), dense.end(), i) == dense.end();
  }
  if (const auto types = text.texts({"mlp_layer_types"})) {
    if (static_cast<int>(types->size()) != config.num_layers) {
      text.fail("mlp_layer_types", "must have one entry per layer");
    }
    for (int i = 0; i < config.num_layers; ++i) config.moe.layers[i] = (*types)[i] == "sparse";
  }
}

void parse_mla(ModelConfig& config, const Fields& text) {
  config.mla = {
      .q_lora_rank = text.integer({"q_lora_rank"}, kWidth).value_or(0),
      .kv_lora_rank = text.need_integer({"kv_lora_rank"}, kWidth),
      .qk_nope_head_dim = text.need_integer({"qk_nope_head_dim"}, kWidth),
      .qk_rope_head_dim = text.need_integer({"qk_rope_head_dim"}, kWidth),
      .v_head_dim = text.need_integer({"v_head_dim"}, kWidth),
      .rope_interleave = text.boolean({"rope_interleave"}).value_or(true),
  };
}

void parse_deepseek(ModelConfig& config, const Fields& text) {
  parse_sliding(config, text);
  parse_mla(config, text);
  parse_experts(config, text);
  parse_expert_layers(config, text);
  const bool third = config.architecture == "DeepseekV3ForCausalLM";
  config.moe.score = third ? RouterScore::sigmoid : RouterScore::softmax;
  const std::string method = text.text({"topk_method"}).value_or(third ? "noaux_tc" : "greedy");
  if (method == "greedy") {
    config.moe.n_group = config.moe.topk_group = 1;
  } else if (method != (third ? "noaux_tc" : "group_limited_greedy")) {
    text.fail("topk_method", "\"" + method + "\" is not supported", ErrorCode::unsupported);
  }
}

void parse_delta_net_hybrid(ModelConfig& config, const Fields& text) {
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
    text.fail("linear_num_key_heads", "must divide linear_num_value_heads");
  }
  if (config.architecture.find("Moe") != std::string::npos ||
      config.architecture.starts_with("Qwen3Next")) {
    parse_experts(config, text);
    parse_expert_layers(config, text);
  }
  // Qwen3.5 keeps its state in float32 unless the file says otherwise; Qwen3-Next in the model's
  // dtype.
  if (config.architecture.starts_with("Qwen3_5")) {
    config.recurrent_state_dtype =
        text.text({"mamba_ssm_dtype"}).value_or("float32") == "bfloat16" ? DType::bf16 : DType::f32;
  }
}

void check_mamba(const Mamba2Config& mamba, const Fields& text) {
  if (mamba.num_heads % mamba.num_groups != 0) {
    text.fail("n_groups", "must divide the " + std::to_string(mamba.num_heads) + " Mamba heads");
  }
}

void parse_time_step_limit(Mamba2Config& mamba, const Fields& text) {
  const auto limit = text.numbers({"time_step_limit"});
  if (limit && limit->size() != 2) text.fail("time_step_limit", "must have two entries");
  mamba.time_step_min = limit ? (*limit)[0] : 0.0;
  mamba.time_step_max = limit ? (*limit)[1] : std::numeric_limits<double>::infinity();
}

void parse_granite_hybrid(ModelConfig& config, const Fields& text) {
  parse_granite(config, text);
  if (!parse_layer_types(config, text, LayerType::mamba)) {
    text.fail("layer_types", "is missing");
  }
  if (text.integer({"num_local_experts"}, {0, kExperts.max}).value_or(0) > 0) {
    parse_experts(config, text);
    parse_expert_layers(config, text);
  }
  config.moe.shared_intermediate_size = text.need_integer({"shared_intermediate_size"}, kWidth);
  const int width =
      text.number({"mamba_expand"}).value_or(2.0) * config.hidden_size;  // of all heads
  Mamba2Config& mamba = config.mamba2;
  mamba.num_heads = text.need_integer({"mamba_n_heads"}, kHeads);
  mamba.head_dim = text.find({"mamba_d_head"}) && !text.find({"mamba_d_head"})->is_string()
                       ? text.need_integer({"mamba_d_head"}, kWidth)
                       : width / mamba.num_heads;  // "auto"
  mamba.state_size = text.need_integer({"mamba_d_state"}, kWidth);
  mamba.num_groups = text.integer({"mamba_n_groups"}, kHeads).value_or(1);
  mamba.conv_kernel = text.integer({"mamba_d_conv"}, {2, 64}).value_or(4);
  mamba.chunk_size = text.integer({"mamba_chunk_size"}, kTokens).value_or(256);
  mamba.conv_bias = text.boolean({"mamba_conv_bias"}).value_or(true);
  mamba.proj_bias = text.boolean({"mamba_proj_bias"}).value_or(false);
  parse_time_step_limit(mamba, text);
  check_mamba(mamba, text);
  const std::string positions = text.text({"position_embedding_type"}).value_or("rope");
  if (positions == "nope") config.rope.kind = RopeKind::none;
}

void parse_nemotron_pattern(ModelConfig& config, const Fields& text) {
  const auto pattern = text.text({"hybrid_override_pattern"});
  if (!pattern) text.fail("hybrid_override_pattern", "is missing");
  if (static_cast<int>(pattern->size()) != config.num_layers) {
    text.fail("hybrid_override_pattern", "has " + std::to_string(pattern->size()) +
                                             " layers, num_hidden_layers is " +
                                             std::to_string(config.num_layers));
  }
  for (const char c : *pattern) {
    config.layer_types.push_back(c == 'M'   ? LayerType::mamba
                                 : c == '*' ? LayerType::full_attention
                                 : c == '-' ? LayerType::mlp
                                            : LayerType::moe);
    if (std::string_view("M*-E").find(c) == std::string_view::npos) {
      text.fail("hybrid_override_pattern", std::string("has an unknown layer '") + c + "'");
    }
  }
}

void parse_nemotron(ModelConfig& config, const Fields& text) {
  if (!parse_layer_types(config, text, LayerType::mamba)) parse_nemotron_pattern(config, text);
  const auto& types = config.layer_types;
  if (std::find(types.begin(), types.end(), LayerType::moe) != types.end()) {
    parse_experts(config, text);
    config.moe.score = RouterScore::sigmoid;
    if (text.has({"moe_latent_size"})) {
      text.fail("moe_latent_size", "latent experts are not supported", ErrorCode::unsupported);
    }
  }
  config.moe.layers.resize(config.num_layers);
  for (int i = 0; i < config.num_layers; ++i) {
    config.moe.layers[i] = types[i] == LayerType::moe;
  }
  config.activation = Activation::relu2;
  config.rope.kind = RopeKind::none;
  Mamba2Config& mamba = config.mamba2;
  mamba.num_heads = text.need_integer({"mamba_num_heads"}, kHeads);
  mamba.head_dim = text.need_integer({"mamba_head_dim"}, kWidth);
  mamba.state_size = text.need_integer({"ssm_state_size"}, kWidth);
  mamba.num_groups = text.integer({"n_groups"}, kHeads).value_or(1);
  mamba.conv_kernel = text.integer({"conv_kernel"}, {2, 64}).value_or(4);
  mamba.chunk_size = text.integer({"chunk_size"}, kTokens).value_or(128);
  mamba.conv_bias = text.boolean({"use_conv_bias"}).value_or(true);
  mamba.proj_bias = text.boolean({"mamba_proj_bias", "use_bias"}).value_or(false);
  parse_time_step_limit(mamba, text);
  mamba.time_step_min = text.number({"time_step_min"}).value_or(0.001);
  check_mamba(mamba, text);
  const std::string dtype = text.text({"mamba_ssm_cache_dtype"}).value_or("float32");
  config.recurrent_state_dtype = dtype == "bfloat16"  ? DType::bf16
                                 : dtype == "float16" ? DType::f16
                                                      : DType::f32;
}

void parse_gpt_oss(ModelConfig& config, const Fields& text) {
  parse_alternating(config, text, 2);
  parse_experts(config, text);
  parse_expert_layers(config, text);
  config.attention_bias = text.boolean({"attention_bias"}).value_or(true);
  config.swiglu_alpha = text.number({"swiglu_alpha"}).value_or(1.702);
  config.swiglu_limit = text.number({"swiglu_limit"}).value_or(7.0);
}

void parse_dense(ModelConfig& config, const Fields& text) { parse_sliding(config, text); }

void parse_qwen2(ModelConfig& config, const Fields& text) {
  parse_sliding(config, text);
  config.attention_bias = true;
}

void parse_with_qk_norm(ModelConfig& config, const Fields& text) {
  parse_sliding(config, text);
  config.qk_norm = text.boolean({"use_qk_norm"}).value_or(true);
}

void parse_granite_dense(ModelConfig& config, const Fields& text) {
  parse_sliding(config, text);
  parse_granite(config, text);
}

void parse_mixtral(ModelConfig& config, const Fields& text) {
  parse_sliding(config, text);
  parse_experts(config, text);
  parse_expert_layers(config, text);
}

void parse_qwen3_moe(ModelConfig& config, const Fields& text) {
  parse_mixtral(config, text);
  config.qk_norm = true;
}

void parse_glm4_moe(ModelConfig& config, const Fields& text) {
  parse_mixtral(config, text);
  config.qk_norm = text.boolean({"use_qk_norm"}).value_or(false);
  config.moe.score = RouterScore::sigmoid;
}

struct Family {
  std::string_view architecture;
  void (*parse)(ModelConfig&, const Fields&);
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", parse_dense},
    {"MistralForCausalLM", parse_dense},
    {"Mistral3ForConditionalGeneration", parse_dense},
    {"Phi3ForCausalLM", parse_dense},
    {"Qwen2ForCausalLM", parse_qwen2},
    {"Qwen3ForCausalLM", parse_with_qk_norm},
    {"Olmo2ForCausalLM", parse_with_qk_norm},
    {"GraniteForCausalLM", parse_granite_dense},
    {"MixtralForCausalLM", parse_mixtral},
    {"Qwen3MoeForCausalLM", parse_qwen3_moe},
    {"Glm4MoeForCausalLM", parse_glm4_moe},
    {"Gemma2ForCausalLM", parse_gemma},
    {"Gemma3ForCausalLM", parse_gemma},
    {"Gemma3ForConditionalGeneration", parse_gemma},
    {"GptOssForCausalLM", parse_gpt_oss},
    {"DeepseekV2ForCausalLM", parse_deepseek},
    {"DeepseekV3ForCausalLM", parse_deepseek},
    {"Qwen3NextForCausalLM", parse_delta_net_hybrid},
    {"Qwen3_5ForCausalLM", parse_delta_net_hybrid},
    {"Qwen3_5ForConditionalGeneration", parse_delta_net_hybrid},
    {"Qwen3_5MoeForCausalLM", parse_delta_net_hybrid},
    {"Qwen3_5MoeForConditionalGeneration", parse_delta_net_hybrid},
    {"NemotronHForCausalLM", parse_nemotron},
    {"GraniteMoeHybridForCausalLM", parse_granite_hybrid},
};

const Family* find_family(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

}  // namespace

void check_architecture(const std::string& architecture, const Fields& root) {
  if (find_family(architecture) != nullptr) return;
  std::string known;
  for (const Family& family : kFamilies) {
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  root.fail("architectures", "\"" + architecture + "\" is not supported (" + known + ")",
            ErrorCode::unsupported);
}

void parse_family(ModelConfig& config, const Fields& text) {
  const auto pattern = text.text({"hybrid_override_pattern"});
  config.num_layers = pattern && !text.has({"num_hidden_layers"})
                          ? static_cast<int>(std::clamp<std::size_t>(pattern->size(), 1, 1 << 12))
                          : text.need_integer({"num_hidden_layers"}, kLayers);
  find_family(config.architecture)->parse(config, text);
}

}  // namespace quire
