// What the config.json of encoders says: BERT, and RoBERTa, whose positions begin behind the
// padding token's number.

#include "model/arch/encoders.h"
#include "model/config_parts.h"
#include "model/encoder.h"

namespace quire {

namespace {

constexpr std::size_t kMaxConfigBytes = 16u << 20;

bool is_roberta(const ModelConfig& config) {
  return config.architecture.find("Roberta") != std::string::npos;
}

EncoderConfig parse_encoder(const ModelConfig& config, const Json& text) {
  EncoderConfig encoder;
  encoder.type_vocab_size = text.integer({"type_vocab_size"}, {0, 1 << 16}).value_or(2);
  encoder.exact_gelu = text.text({"hidden_act"}).value_or("gelu") == "gelu";
  if (is_roberta(config))
    encoder.first_position = text.integer({"pad_token_id"}, {0, 1 << 16}).value_or(1) + 1;
  return encoder;
}

}  // namespace

bool is_encoder(const ModelConfig& config) {
  return is_roberta(config) || config.architecture.starts_with("Bert");
}

EncoderConfig read_encoder_config(const ModelConfig& config) {
  const JsonDocument document = JsonDocument::read(config.file, kMaxConfigBytes);
  return parse_encoder(config, document.object());
}

void parse_encoder_family(ModelConfig& config, const Json& text) {
  const EncoderConfig encoder = parse_encoder(config, text);
  config.rope.kind = RopeKind::none;
  fill_layer_types(config, LayerType::full_attention, LayerType::full_attention,
                   [](int) { return false; });
  if (config.intermediate_size == 0) text.fail_at("intermediate_size", "is missing");
  if (config.head_dim * config.num_heads != config.hidden_size)
    text.fail_at("num_attention_heads", "must divide hidden_size " +
                                            std::to_string(config.hidden_size) + ", is " +
                                            std::to_string(config.num_heads));
  const std::string kind = text.text({"position_embedding_type"}).value_or("absolute");
  if (kind != "absolute")
    text.fail_at("position_embedding_type", "\"" + kind + "\" is not supported (absolute)",
                 ErrorCode::unsupported);
  if (config.max_position_embeddings <= encoder.first_position)
    text.fail_at("max_position_embeddings", "must be above pad_token_id + 1");
  config.max_position_embeddings -= encoder.first_position;
  config.longest_context = config.max_position_embeddings;
}

}  // namespace quire
