#include <algorithm>
#include <cmath>
#include <utility>

#include "model/arch/architectures.h"
#include "model/architectures.h"
#include "model/config_parts.h"

namespace quire {

void parse_qwen2(ModelConfig& config, const Json& text) {
  parse_qwen_sliding(config, text);
  config.attention_bias = true;
  config.attention_output_bias = false;
}

void parse_qwen3(ModelConfig& config, const Json& text) {
  parse_qwen_sliding(config, text);
  config.qk_norm = text.boolean({"use_qk_norm"}).value_or(true);
}

void parse_olmo2(ModelConfig& config, const Json& text) {
  parse_sliding(config, text);
  config.qk_norm = text.boolean({"use_qk_norm"}).value_or(true);
}

namespace {

// Later ones have windows, as in vLLM with sinks in all layers, and a rope's base for each.
void refuse_granite_windows(const ModelConfig& config, const Json& text) {
  const auto& types = config.layer_types;
  const bool has_windows = text.has({"layer_types"}) &&
                           std::ranges::find(types, LayerType::sliding_attention) != types.end();
  if (text.boolean({"attention_sinks"}).value_or(has_windows))
    text.fail_at("attention_sinks", "is not supported for Granite", ErrorCode::unsupported);
  if (text.has({"layer_rope_theta"}))
    text.fail_at("layer_rope_theta", "is not supported", ErrorCode::unsupported);
}

}  // namespace

void parse_granite_dense(ModelConfig& config, const Json& text) {
  parse_sliding(config, text);
  refuse_granite_windows(config, text);
  parse_granite(config, text);
}

namespace {

void parse_gemma(ModelConfig& config, const Json& text, int period) {
  parse_alternating(config, text, period);
  const double scalar = text.number({"query_pre_attn_scalar"}).value_or(config.head_dim);
  if (!(scalar > 0)) text.fail_at("query_pre_attn_scalar", "must be above 0");
  config.attention_scale = 1.0 / std::sqrt(scalar);
  config.logits_soft_cap = text.number({"final_logit_softcapping"}).value_or(0.0);
  config.embedding_multiplier = std::sqrt(double(config.hidden_size));
  if (text.boolean({"use_bidirectional_attention"}).value_or(false)) {
    text.fail_at("use_bidirectional_attention", "is not supported", ErrorCode::unsupported);
  }
}

}  // namespace

void parse_gemma2(ModelConfig& config, const Json& text) {
  parse_gemma(config, text, 2);
  // Gemma 3 has no such caps, whatever its file says.
  config.attention_soft_cap = text.number({"attn_logit_softcapping"}).value_or(0.0);
}

void parse_gemma3(ModelConfig& config, const Json& text) {
  parse_gemma(config, text,
              text.integer({"sliding_window_pattern", "_sliding_window_pattern"}).value_or(6));
  config.qk_norm = true;
  config.longest_context = config.max_position_embeddings;  // published as stretched
}

namespace {

// Where it is not said, as many as are listed (Nemotron-H as transformers 5 saves it).
int num_layers_of(const Json& text) {
  std::size_t listed = 0;
  if (!text.has({"num_hidden_layers"})) {
    const auto pattern = text.text({"hybrid_override_pattern"});
    const auto types = text.texts({"layers_block_type"});
    listed = pattern ? pattern->size() : types ? types->size() : 0;
  }
  if (listed == 0) return text.need_integer({"num_hidden_layers"}, kLayers);
  return static_cast<int>(std::min<std::int64_t>(static_cast<std::int64_t>(listed), kLayers.max));
}

}  // namespace

void parse_family(ModelConfig& config, const Architecture& architecture, const Json& text) {
  config.num_layers = num_layers_of(text);
  architecture.parse(config, text);
}

}  // namespace quire
