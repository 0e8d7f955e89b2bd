// What a published class assumes where its config.json is silent: defaults of its configuration
// class in transformers, by the names that config.json has for them. What every class agrees on is
// in config*.cpp. A file that stands alone is written whole, and must say how large the model is; a
// text_config leaves out whatever is its class's default, sizes too.

#include "model/architectures.h"
#include "model/config_parts.h"

namespace quire {

namespace {

// Published under the class of Mistral 3, whose text part is older or newer.
constexpr std::string_view kMinistral3 = R"({
  "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
  "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
  "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16,
    "original_max_position_embeddings": 16384, "beta_fast": 32, "beta_slow": 1, "mscale": 1,
    "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1}})";

}  // namespace

namespace class_defaults {

const std::string_view kMistral = R"({"num_key_value_heads": 8, "max_position_embeddings": 131072,
  "sliding_window": 4096})";

const std::string_view kMistral3 = R"({
  "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
  "sliding_window": 4096})";

const std::string_view kPhi3 = R"({"max_position_embeddings": 4096,
  "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5})";

const std::string_view kQwen2 = R"({"num_key_value_heads": 32, "max_position_embeddings": 32768,
  "sliding_window": 4096, "max_window_layers": 28})";

const std::string_view kQwen3 = R"({"num_key_value_heads": 32, "head_dim": 128,
  "max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28})";

const std::string_view kOlmo2 = R"({"rms_norm_eps": 1e-5})";

const std::string_view kGemma2 = R"({"num_key_value_heads": 4, "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
  "tie_word_embeddings": true, "query_pre_attn_scalar": 256, "sliding_window": 4096,
  "attn_logit_softcapping": 50, "final_logit_softcapping": 30})";

const std::string_view kGemma3 = R"({"num_key_value_heads": 4, "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
  "tie_word_embeddings": true, "query_pre_attn_scalar": 256, "sliding_window": 4096,
  "rope_theta": 1e6, "rope_local_base_freq": 1e4})";

const std::string_view kGemma3Vision = R"({
  "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
  "tie_word_embeddings": true, "query_pre_attn_scalar": 256, "sliding_window": 4096,
  "rope_theta": 1e6, "rope_local_base_freq": 1e4})";

const std::string_view kMixtral = R"({"num_key_value_heads": 8, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2})";

const std::string_view kQwen3Moe = R"({"num_key_value_heads": 4, "max_position_embeddings": 32768,
  "sliding_window": 4096, "num_experts": 128, "num_experts_per_tok": 8,
  "moe_intermediate_size": 768, "norm_topk_prob": false})";

const std::string_view kGlm4Moe = R"({"num_key_value_heads": 8, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "n_routed_experts": 128,
  "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "n_shared_experts": 1,
  "first_k_dense_replace": 1})";

const std::string_view kGptOss = R"({"num_key_value_heads": 8, "head_dim": 64,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "sliding_window": 128,
  "attention_bias": true, "num_local_experts": 128, "num_experts_per_tok": 4, "rope_theta": 150000,
  "rope_parameters": {"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1,
    "truncate": false, "original_max_position_embeddings": 4096}})";

const std::string_view kDeepseekV2 = R"({"q_lora_rank": 1536, "kv_lora_rank": 512,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
  "n_shared_experts": 2, "moe_intermediate_size": 1407})";

const std::string_view kDeepseekV3 = R"({"num_key_value_heads": 128,
  "max_position_embeddings": 4096, "q_lora_rank": 1536, "kv_lora_rank": 512,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256,
  "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_group": 8,
  "topk_group": 4, "routed_scaling_factor": 2.5, "first_k_dense_replace": 3})";

const std::string_view kQwen3Next = R"({"num_key_value_heads": 2, "head_dim": 256,
  "max_position_embeddings": 32768, "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
  "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
  "shared_expert_intermediate_size": 512})";

const std::string_view kQwen35 = R"({
  "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
  "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
  "max_position_embeddings": 32768, "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
  "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128})";

const std::string_view kQwen35Moe = R"({
  "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
  "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
  "partial_rotary_factor": 0.25, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
  "linear_key_head_dim": 128, "linear_value_head_dim": 128, "num_experts": 256,
  "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512})";

const std::string_view kNemotronH = R"({"num_key_value_heads": 8, "head_dim": 128,
  "max_position_embeddings": 4096, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
  "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
  "conv_kernel": 4, "chunk_size": 128, "time_step_min": 0.001, "n_routed_experts": 8,
  "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 7688,
  "moe_shared_expert_intermediate_size": 7688})";

const std::string_view kGraniteHybrid = R"({"num_local_experts": 8, "num_experts_per_tok": 2,
  "shared_intermediate_size": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1,
  "mamba_d_state": 256, "mamba_d_head": "auto", "mamba_d_conv": 4, "mamba_expand": 2,
  "mamba_chunk_size": 256})";

const std::string_view kBert = R"({"hidden_act": "gelu", "layer_norm_eps": 1e-12,
  "max_position_embeddings": 512})";

}  // namespace class_defaults

// GGUF's metadata have defaults of their own, which model/gguf/config.cpp writes.
std::string_view class_defaults_of(const Architecture& architecture, const Json& text) {
  const std::string type = text.text({"model_type"}).value_or("");
  if (type == "gguf" || architecture.defaults == nullptr) return "{}";
  return type == "ministral3" ? kMinistral3 : *architecture.defaults;
}

}  // namespace quire
