#pragma once
// config.json, in any published form, as one struct: older (rope_theta, rope_scaling, torch_dtype),
// newer (rope_parameters, dtype), nested in text_config. Every number that an architecture needs is
// here, defaults resolved; nothing else reads config.json. Bad input throws Failure naming file and
// field.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/dtype.h"
#include "backend/ops.h"
#include "model/quant_config.h"

namespace quire {

// What mixes tokens in a layer (or, in models whose blocks are one thing each, what the block is).
enum class LayerType : std::uint8_t {
  full_attention,
  sliding_attention,
  linear_attention,  // gated delta net
  mamba,             // Mamba2
  mlp,               // Nemotron-H: a block that only has an MLP
  moe,               // Nemotron-H: a block that only has experts
};

enum class RopeKind : std::uint8_t { none, standard, linear, dynamic, yarn, llama3, longrope };

struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  double factor = 1.0;
  int original_max_position_embeddings = 0;
  std::optional<double> attention_factor;
  double beta_fast = 32.0;  // yarn
  double beta_slow = 1.0;
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  bool truncate = true;
  double llama_4_scaling_beta = 0.0;  // grows queries beyond the original length
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  std::vector<double> short_factor;  // longrope, one per pair of dimensions
  std::vector<double> long_factor;
};

enum class RouterScore : std::uint8_t { softmax, sigmoid };

struct MoeConfig {
  int num_experts = 0;  // 0: a dense model
  int num_experts_per_tok = 0;
  int intermediate_size = 0;         // of one expert
  int num_shared_experts = 0;        // shared experts run as one MLP of shared_intermediate_size
  int shared_intermediate_size = 0;  // 0: none
  int latent_size = 0;               // of what routed experts see and give; 0: hidden_size
  RouterScore score = RouterScore::softmax;
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1.0;
  int n_group = 1;
  int topk_group = 1;
  std::vector<bool> layers;  // by layer: experts instead of an MLP
};

// Multi-head latent attention; kv_lora_rank 0: the model has none.
struct MlaConfig {
  int q_lora_rank = 0;  // 0: one full-rank query projection
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  int v_head_dim = 0;
  bool rope_interleave = true;
};

// Gated delta net.
struct DeltaNetConfig {
  int num_key_heads = 0;
  int num_value_heads = 0;
  int key_head_dim = 0;
  int value_head_dim = 0;
  int conv_kernel = 0;
  bool fused_inputs = false;  // in_proj_qkvz and in_proj_ba, interleaved by key head
};

struct Mamba2Config {
  int num_heads = 0;
  int head_dim = 0;
  int state_size = 0;
  int num_groups = 0;
  int conv_kernel = 0;
  int chunk_size = 0;
  bool conv_bias = false;
  bool proj_bias = false;
  double time_step_min = 0.0;  // dt after softplus is clamped to [min, max]
  double time_step_max = 0.0;
};

struct ModelConfig {
  std::filesystem::path file;  // for messages
  std::string architecture;    // architectures[0]
  DType dtype = DType::bf16;   // as published

  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int max_position_embeddings = 0;
  int longest_context = 0;  // tokens that rope scaling reaches; at least the above, the default
  double rms_norm_eps = 1e-6;
  Activation activation = Activation::silu;
  bool tie_word_embeddings = false;
  bool attention_bias = false;  // of q, k and v, and of o unless the next says not
  bool attention_output_bias = true;
  bool mlp_bias = false;
  bool qk_norm = false;

  std::vector<LayerType> layer_types;  // num_layers entries
  int sliding_window = 0;              // of the sliding layers
  RopeConfig rope;
  std::optional<RopeConfig> rope_local;  // of the sliding layers, where it differs

  // Factors: 1 or 0 means absent.
  double attention_scale = 0.0;  // of the logits q·k; 0: 1 / sqrt(head_dim)
  double attention_soft_cap = 0.0;
  double logits_soft_cap = 0.0;
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logits_divisor = 1.0;

  MoeConfig moe;
  MlaConfig mla;
  DeltaNetConfig delta_net;
  Mamba2Config mamba2;
  std::optional<DType> recurrent_state_dtype;  // the model's own choice
  double swiglu_alpha = 0.0;                   // clamped SwiGLU of gpt-oss
  double swiglu_limit = 0.0;
  bool reads_mxfp4 = false;  // this architecture has a loader of such experts
  QuantConfig quant;

  std::optional<std::int32_t> bos_token_id;
  std::vector<std::int32_t> eos_token_ids;  // of config.json
};

// What generation_config.json suggests where a request says nothing, the number of tokens included.
struct GenerationConfig {
  std::optional<std::int32_t> bos_token_id;
  std::vector<std::int32_t> eos_token_ids;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int32_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<bool> do_sample;
  std::optional<std::int32_t> max_new_tokens;
};

// Both of model_dir/config.json, or of a GGUF file's metadata; `parse` also serves tests and
// fuzzing. `file` is for messages.
ModelConfig read_model_config(const std::filesystem::path& model_dir);
ModelConfig parse_model_config(std::string_view json, const std::filesystem::path& file);

// Without the file: everything unset. eos_token_ids there come before config.json's.
GenerationConfig read_generation_config(const std::filesystem::path& model_dir);
GenerationConfig parse_generation_config(std::string_view json, const std::filesystem::path& file);

}  // namespace quire
