#include <algorithm>

#include "model/arch/architectures.h"
#include "model/config_parts.h"

namespace quire {

void parse_experts(ModelConfig& config, const Json& text) {
  MoeConfig& moe = config.moe;
  moe.num_experts =
      text.need_integer({"num_experts", "num_local_experts", "n_routed_experts"}, kExperts);
  moe.num_experts_per_tok = text.need_integer({"num_experts_per_tok"}, {1, moe.num_experts});
  moe.intermediate_size =
      text.integer({"moe_intermediate_size"}, kWidth).value_or(config.intermediate_size);
  if (moe.intermediate_size == 0) text.fail_at("moe_intermediate_size", "is missing");
  moe.norm_topk_prob = text.boolean({"norm_topk_prob"}).value_or(true);
  moe.routed_scaling_factor = text.number({"routed_scaling_factor"}).value_or(1.0);
  moe.n_group = text.integer({"n_group"}, kExperts).value_or(1);
  moe.topk_group = text.integer({"topk_group"}, {1, moe.n_group}).value_or(1);
  if (moe.num_experts % moe.n_group != 0) {
    text.fail_at("n_group", "must divide the " + std::to_string(moe.num_experts) + " experts");
  }
  moe.num_shared_experts = text.integer({"n_shared_experts"}, {0, 64}).value_or(0);
  moe.shared_intermediate_size =
      text.integer({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"},
                   {0, kWidth.max})
          .value_or(moe.num_shared_experts * moe.intermediate_size);
}

void parse_expert_layers(ModelConfig& config, const Json& text) {
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
      text.fail_at("mlp_layer_types", "must have one entry per layer");
    }
    for (int i = 0; i < config.num_layers; ++i) config.moe.layers[i] = (*types)[i] == "sparse";
  }
}

void parse_mixtral(ModelConfig& config, const Json& text) {
  parse_sliding(config, text);
  parse_experts(config, text);
  parse_expert_layers(config, text);
}

void parse_qwen3_moe(ModelConfig& config, const Json& text) {
  parse_qwen_moe_sliding(config, text);
  parse_experts(config, text);
  parse_expert_layers(config, text);
  config.qk_norm = true;
}

void parse_glm4_moe(ModelConfig& config, const Json& text) {
  parse_mixtral(config, text);
  config.attention_output_bias = false;
  config.qk_norm = text.boolean({"use_qk_norm"}).value_or(false);
  config.moe.score = RouterScore::sigmoid;
}

void parse_gpt_oss(ModelConfig& config, const Json& text) {
  parse_alternating(config, text, 2);
  parse_experts(config, text);
  parse_expert_layers(config, text);
  config.swiglu_alpha = text.number({"swiglu_alpha"}).value_or(1.702);
  config.reads_mxfp4 = true;
  config.swiglu_limit = text.number({"swiglu_limit"}).value_or(7.0);
}

namespace {

void parse_mla(ModelConfig& config, const Json& text) {
  config.mla = {
      .q_lora_rank = text.integer({"q_lora_rank"}, kWidth).value_or(0),
      .kv_lora_rank = text.need_integer({"kv_lora_rank"}, kWidth),
      .qk_nope_head_dim = text.need_integer({"qk_nope_head_dim"}, kWidth),
      .qk_rope_head_dim = text.need_integer({"qk_rope_head_dim"}, kWidth),
      .v_head_dim = text.need_integer({"v_head_dim"}, kWidth),
      .rope_interleave = text.boolean({"rope_interleave"}).value_or(true),
  };
}

// `grouped` is how the generation chooses among groups of experts; "greedy" knows no groups.
void parse_deepseek(ModelConfig& config, const Json& text, const std::string& usual,
                    const std::string& grouped) {
  parse_sliding(config, text);
  parse_mla(config, text);
  parse_experts(config, text);
  parse_expert_layers(config, text);
  const std::string method = text.text({"topk_method"}).value_or(usual);
  if (method == "greedy") {
    config.moe.n_group = config.moe.topk_group = 1;
  } else if (method != grouped) {
    text.fail_at("topk_method", "\"" + method + "\" is not supported", ErrorCode::unsupported);
  }
}

}  // namespace

void parse_deepseek_v2(ModelConfig& config, const Json& text) {
  parse_deepseek(config, text, "greedy", "group_limited_greedy");
  config.moe.norm_topk_prob = false;  // published, and ignored by the reference
}

void parse_deepseek_v3(ModelConfig& config, const Json& text) {
  parse_deepseek(config, text, "noaux_tc", "noaux_tc");
  config.moe.score = RouterScore::sigmoid;
}

}  // namespace quire
