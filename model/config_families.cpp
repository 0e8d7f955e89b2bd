#include <algorithm>
#include <cmath>
#include <utility>

#include "model/config_parts.h"

namespace quire {

namespace {

void parse_dense(ModelConfig& config, const Json& text) { parse_sliding(config, text); }

void parse_qwen2(ModelConfig& config, const Json& text) {
  parse_sliding(config, text);
  config.attention_bias = true;
}

void parse_with_qk_norm(ModelConfig& config, const Json& text) {
  parse_sliding(config, text);
  config.qk_norm = text.boolean({"use_qk_norm"}).value_or(true);
}

void parse_granite_dense(ModelConfig& config, const Json& text) {
  parse_sliding(config, text);
  parse_granite(config, text);
}

void parse_gemma(ModelConfig& config, const Json& text) {
  const bool third = config.architecture.starts_with("Gemma3");
  parse_alternating(
      config, text,
      third ? text.integer({"sliding_window_pattern", "_sliding_window_pattern"}).value_or(6) : 2);
  config.qk_norm = third;
  if (third && !text.has({"rope_theta", "rope_parameters"})) config.rope.theta = 1e6;
  if (third && !config.rope_local) config.rope_local.emplace();
  const double scalar = text.number({"query_pre_attn_scalar"}).value_or(config.head_dim);
  if (!(scalar > 0)) text.fail_at("query_pre_attn_scalar", "must be above 0");
  config.attention_scale = 1.0 / std::sqrt(scalar);
  config.attention_soft_cap = text.number({"attn_logit_softcapping"}).value_or(0.0);
  config.logits_soft_cap = text.number({"final_logit_softcapping"}).value_or(0.0);
  config.embedding_multiplier = std::sqrt(double(config.hidden_size));
  if (text.boolean({"use_bidirectional_attention"}).value_or(false)) {
    text.fail_at("use_bidirectional_attention", "is not supported", ErrorCode::unsupported);
  }
}

struct Family {
  std::string_view architecture;
  void (*parse)(ModelConfig&, const Json&);
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

void check_architecture(const std::string& architecture, const Json& root) {
  if (find_family(architecture) != nullptr) return;
  std::string known;
  for (const Family& family : kFamilies) {
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  root.fail_at("architectures", "\"" + architecture + "\" is not supported (" + known + ")",
               ErrorCode::unsupported);
}

void parse_family(ModelConfig& config, const Json& text) {
  const auto pattern = text.text({"hybrid_override_pattern"});
  config.num_layers = pattern && !text.has({"num_hidden_layers"})
                          ? static_cast<int>(std::clamp<std::size_t>(pattern->size(), 1, 1 << 12))
                          : text.need_integer({"num_hidden_layers"}, kLayers);
  find_family(config.architecture)->parse(config, text);
}

}  // namespace quire
