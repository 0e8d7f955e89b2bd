#include "model/registry.h"

#include "model/arch/architectures.h"

namespace quire {

namespace {

struct Architecture {
  std::string_view name;
  std::unique_ptr<Model> (*make)(ModelSource source);
};

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", make_llama},
    {"MistralForCausalLM", make_llama},
    {"Mistral3ForConditionalGeneration", make_llama},
    {"Phi3ForCausalLM", make_llama},
    {"Qwen2ForCausalLM", make_llama},
    {"Qwen3ForCausalLM", make_llama},
    {"GraniteForCausalLM", make_llama},
    {"Olmo2ForCausalLM", make_olmo2},
    {"Gemma2ForCausalLM", make_gemma},
    {"Gemma3ForCausalLM", make_gemma},
    {"Gemma3ForConditionalGeneration", make_gemma},
    {"MixtralForCausalLM", make_mixtral},
    {"Qwen3MoeForCausalLM", make_qwen3_moe},
    {"Glm4MoeForCausalLM", make_glm4_moe},
    {"GptOssForCausalLM", make_gpt_oss},
    {"DeepseekV2ForCausalLM", make_deepseek},
    {"DeepseekV3ForCausalLM", make_deepseek},
    {"Qwen3NextForCausalLM", make_qwen3_next},
    {"Qwen3_5ForCausalLM", make_qwen3_next},
    {"Qwen3_5ForConditionalGeneration", make_qwen3_next},
    {"Qwen3_5MoeForCausalLM", make_qwen3_next},
    {"Qwen3_5MoeForConditionalGeneration", make_qwen3_next},
    {"NemotronHForCausalLM", make_nemotron_h},
    {"GraniteMoeHybridForCausalLM", make_granite_hybrid},
};

void refuse_quantization(const ModelConfig& config, const std::string& wanted) {
  const QuantConfig& quant = config.quant;
  if (!wanted.empty() && wanted != quant.method) {
    const std::string found =
        quant.method.empty() ? "has no quantization_config" : "is \"" + quant.method + "\"";
    throw Failure(Error{ErrorCode::unsupported,
                        "--quantization " + wanted + ": " + config.file.string() + " " + found +
                            "; weights are used as they are published",
                        "--quantization"});
  }
  const auto refuse = [&](const std::string& field, const std::string& reason) {
    throw Failure(
        Error{ErrorCode::unsupported, config.file.string() + ": " + field + ": " + reason, field});
  };
  if (!quant.supported()) refuse(quant.unsupported_field, quant.unsupported_reason);
  if (quant.method == "mxfp4" && config.architecture != "GptOssForCausalLM") {
    refuse("quantization_config.quant_method",
           "\"mxfp4\" is not supported for " + config.architecture);
  }
}

}  // namespace

std::unique_ptr<Model> load_model(const ModelConfig& config, const std::filesystem::path& model_dir,
                                  Device& device, const OpsTraits& ops,
                                  const LoadOptions& options) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name != config.architecture) continue;
    refuse_quantization(config, options.quantization);
    const int native = config.max_position_embeddings;
    auto weights =
        std::make_unique<Weights>(model_dir, options.load_format, options.seed, options.dtype,
                                  device, config.quant.fp8, options.measure);
    weights->on_progress(options.progress);
    return architecture.make(
        {.config = config,
         .weights = std::move(weights),
         .device = device,
         .ops = ops,
         .max_model_len = options.max_model_len > 0 ? options.max_model_len : native});
  }
  throw Failure(Error{
      ErrorCode::unsupported,
      config.file.string() + ": architectures: \"" + config.architecture + "\" is not supported",
      "architectures"});
}

std::vector<std::string_view> supported_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

}  // namespace quire
