#include "model/config.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/file.h"
#include "gguf/archive.h"
#include "model/architectures.h"
#include "model/config_parts.h"
#include "model/encoder.h"
#include "model/gguf/config.h"
#include "model/model_folder.h"

namespace quire {

namespace {

constexpr std::size_t kMaxConfigBytes = 16u << 20;
constexpr IntRange kTokenIds{0, (1 << 28) - 1};

std::optional<DType> dtype_named(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"bfloat16", DType::bf16}, {"float16", DType::f16}, {"half", DType::f16},
      {"float32", DType::f32},   {"float", DType::f32},
  };
  for (const auto& [spelling, dtype] : kNames) {
    if (name == spelling) return dtype;
  }
  return {};
}

DType parse_dtype(const Json& text, const Json& root) {
  for (const Json* fields : {&text, &root}) {
    if (const auto name = fields->text({"dtype", "torch_dtype"})) {
      if (const auto dtype = dtype_named(*name)) return *dtype;
      fields->fail_at("dtype", "\"" + *name + "\" is not supported (bfloat16, float16, float32)",
                      ErrorCode::unsupported);
    }
  }
  return DType::bf16;
}

Activation parse_activation(const Json& text, bool exact_gelu) {
  // Gemma's name, and what its files say beside it under the other's is not meant.
  const auto gemma = text.text({"hidden_activation"});
  const std::string name =
      gemma ? *gemma : text.text({"mlp_hidden_act", "hidden_act"}).value_or("silu");
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  if (name == "relu2") return Activation::relu2;
  if (name == "gelu" && exact_gelu) return Activation::gelu_tanh;  // EncoderConfig::exact_gelu
  text.fail_at("hidden_act", "\"" + name + "\" is not supported (silu, gelu_pytorch_tanh, relu2)",
               ErrorCode::unsupported);
}

// −1 is how some files write that there is none.
std::vector<std::int32_t> end_tokens(const Json& fields) {
  auto ids = fields.integers({"eos_token_id"}, {-1, kTokenIds.max});
  std::erase(ids, -1);
  return ids;
}

std::optional<std::int32_t> begin_token(const Json& fields) {
  const auto id = fields.integer({"bos_token_id"}, {-1, kTokenIds.max});
  return id == -1 ? std::nullopt : id;
}

void parse_common(ModelConfig& config, const Json& text) {
  config.vocab_size = text.need_integer({"vocab_size"}, {1, 1 << 24});
  config.hidden_size = text.need_integer({"hidden_size"}, kWidth);
  config.num_heads = text.need_integer({"num_attention_heads"}, kHeads);
  config.num_kv_heads = text.integer({"num_key_value_heads"}, kHeads).value_or(config.num_heads);
  const int share = std::max(1, config.hidden_size / config.num_heads);
  config.head_dim = text.integer({"head_dim"}, kWidth).value_or(share);
  config.intermediate_size = text.integer({"intermediate_size"}, kWidth).value_or(0);
  config.max_position_embeddings =
      text.integer({"max_position_embeddings"}, kTokens).value_or(2048);
  config.rms_norm_eps =
      text.number({"rms_norm_eps", "layer_norm_epsilon", "norm_eps", "layer_norm_eps"})
          .value_or(1e-6);
  if (!(config.rms_norm_eps >= 0)) text.fail_at("rms_norm_eps", "must not be negative");
  config.activation = parse_activation(text, is_encoder(config));
  config.attention_bias = text.boolean({"attention_bias"}).value_or(false);
  config.mlp_bias = text.boolean({"mlp_bias"}).value_or(false);
  config.bos_token_id = begin_token(text);
  config.eos_token_ids = end_tokens(text);
  if (config.num_heads % config.num_kv_heads != 0) {
    text.fail_at("num_key_value_heads", "must divide num_attention_heads " +
                                            std::to_string(config.num_heads) + ", is " +
                                            std::to_string(config.num_kv_heads));
  }
}

// Embedding models whose tokens all see each other, in the class of one that generates. A text part
// says it itself, or what it stands in does.
void refuse_bidirectional(const ModelConfig& config, const Json& text, const Json& root) {
  if (is_encoder(config)) return;
  for (const Json* fields : {&text, &root}) {
    if (fields->boolean({"is_causal"}).value_or(true)) continue;
    fields->fail_at("is_causal", "false is not supported for " + config.architecture +
                                     ", whose tokens see those before them alone",
                    ErrorCode::unsupported);
  }
}

// Where vLLM looks: the last is how compressed-tensors once called it.
std::optional<Json> published_quantization(const Json& root, const Json& text) {
  if (const auto quant = root.object({"quantization_config"})) return quant;
  if (const auto quant = text.object({"quantization_config"})) return quant;
  return root.object({"compression_config"});
}

const Architecture& parse_architecture(const Json& root) {
  const auto published = root.texts({"architectures"});
  if (!published || published->empty()) root.fail_at("architectures", "is missing");
  if (const Architecture* found = find_architecture(published->front())) return *found;
  std::string known;
  for (const Architecture& one : architectures()) {
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  root.fail_at("architectures", "\"" + published->front() + "\" is not supported (" + known + ")",
               ErrorCode::unsupported);
}

}  // namespace

ModelConfig parse_model_config(std::string_view json, const std::filesystem::path& file) {
  const JsonDocument document(std::string(json), file);
  const Json root = document.object();
  const Json text = root.object({"text_config"}).value_or(root);
  return parse_config_as(parse_architecture(root), root, text, file);
}

ModelConfig parse_config_as(const Architecture& architecture, const Json& root,
                            const Json& published, const std::filesystem::path& file) {
  const JsonDocument defaults(std::string(class_defaults_of(architecture, published)), file);
  const Json text = published.with_defaults(defaults);
  ModelConfig config;
  config.file = file;
  config.architecture = architecture.name;
  refuse_bidirectional(config, text, root);
  config.dtype = parse_dtype(text, root);
  parse_common(config, text);
  // The class that is published decides; a text part inside it has its own idea.
  const auto tied = root.boolean({"tie_word_embeddings"});
  config.tie_word_embeddings = tied ? *tied : text.boolean({"tie_word_embeddings"}).value_or(false);
  if (const auto quant = published_quantization(root, text)) {
    config.quant = parse_quantization(*quant);
  }
  if (config.eos_token_ids.empty()) config.eos_token_ids = end_tokens(root);
  parse_rope(config, text);
  parse_family(config, architecture, text);
  return config;
}

namespace {

constexpr std::size_t kMaxQuantBytes = 1u << 20;

// AutoGPTQ and AutoAWQ once wrote their numbers beside config.json alone.
void read_older_quantization(ModelConfig& config, const std::filesystem::path& model_dir) {
  for (const char* name : {"quantize_config.json", "quant_config.json"}) {
    const auto file = model_dir / name;
    if (!std::filesystem::exists(file)) continue;
    const JsonDocument document(read_text_file(file, kMaxQuantBytes), file);
    const Json quant = document.object();
    config.quant = parse_quantization(quant, quant.has({"w_bit"}) ? "awq" : "gptq");
    return;
  }
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& model_dir) {
  if (gguf::is_gguf(model_dir)) {
    ModelConfig config = parse_model_config(gguf_config_json(model_dir), model_dir);
    config.quant.method = "gguf";
    return config;
  }
  check_model_folder(model_dir);
  const auto file = model_dir / "config.json";
  if (!std::filesystem::exists(file) &&
      std::filesystem::exists(model_dir / "adapter_config.json")) {
    throw Failure(ErrorCode::unsupported,
                  model_dir.string() +
                      " holds an adapter (adapter_config.json) and no model; merge "
                      "it into its base model (peft's merge_and_unload) and serve "
                      "that");
  }
  ModelConfig config = parse_model_config(read_text_file(file, kMaxConfigBytes), file);
  if (config.quant.method.empty() && !config.quant.kv_cache_dtype)
    read_older_quantization(config, model_dir);
  return config;
}

GenerationConfig parse_generation_config(std::string_view json, const std::filesystem::path& file) {
  const JsonDocument document(std::string(json), file);
  const Json root = document.object();
  // What a request may ask for; the server would refuse each that asks for nothing itself.
  const auto number = [&](const char* name, int high) {
    const std::optional<double> value = root.number({name});
    if (!value || (*value >= 0 && *value <= high)) return value;
    throw Failure(ErrorCode::invalid_argument,
                  file.string() + ": " + name + " must be from 0 to " + std::to_string(high));
  };
  const auto positive = [&](const char* name, int high) {
    const std::optional<double> value = number(name, high);
    if (value != 0) return value;
    throw Failure(
        ErrorCode::invalid_argument,
        file.string() + ": " + name + " must be above 0 and at most " + std::to_string(high));
  };
  return {
      .bos_token_id = begin_token(root),
      .eos_token_ids = end_tokens(root),
      .temperature = number("temperature", 100),
      .top_p = positive("top_p", 1),
      .top_k = root.integer({"top_k"}, {-1, 1 << 24}),
      .min_p = number("min_p", 1),
      .repetition_penalty = positive("repetition_penalty", 1000),
      .do_sample = root.boolean({"do_sample"}),
      .max_new_tokens = root.integer({"max_new_tokens"}, {1, std::numeric_limits<int>::max()}),
  };
}

GenerationConfig read_generation_config(const std::filesystem::path& model_dir) {
  const auto file = model_dir / "generation_config.json";
  if (gguf::is_gguf(model_dir) || !std::filesystem::exists(file)) return {};
  return parse_generation_config(read_text_file(file, kMaxConfigBytes), file);
}

}  // namespace quire
