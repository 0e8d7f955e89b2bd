#include "model/registry.h"

#include "model/architectures.h"
#include "model/layers/causal_lm.h"

namespace quire {

namespace {

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
  if (quant.method == "mxfp4" && !config.reads_mxfp4) {
    refuse("quantization_config.quant_method",
           "\"mxfp4\" is not supported for " + config.architecture);
  }
}

}  // namespace

std::unique_ptr<Model> load_model(const ModelConfig& config, const std::filesystem::path& model_dir,
                                  Device& device, const OpsTraits& ops,
                                  const LoadOptions& options) {
  const Architecture* architecture = find_architecture(config.architecture);
  if (architecture == nullptr) {
    throw Failure(Error{
        ErrorCode::unsupported,
        config.file.string() + ": architectures: \"" + config.architecture + "\" is not supported",
        "architectures"});
  }
  refuse_quantization(config, options.quantization);
  const int native = config.max_position_embeddings;
  auto weights =
      std::make_unique<Weights>(model_dir, options.load_format, options.seed, options.dtype, device,
                                config.quant.fp8, options.measure, config.quant.packed);
  weights->on_progress(options.progress);
  return architecture->make(
      {.config = config,
       .weights = std::move(weights),
       .device = device,
       .ops = ops,
       .max_model_len = options.max_model_len > 0 ? options.max_model_len : native});
}

}  // namespace quire
