#include "model/registry.h"

#include <algorithm>

#include "backend/measuring_device.h"
#include "model/architectures.h"
#include "model/layers/causal_lm.h"
#include "model/rounded_rows.h"
#include "model/unused_tensors.h"

namespace quire {

namespace {

// Bits of --quantization int8 or int4; 0: something else, or nothing.
int bits_of(const std::string& wanted) { return wanted == "int8" ? 8 : wanted == "int4" ? 4 : 0; }

// vLLM's names for GPTQ and AWQ with a kernel of its own: the weights are the same.
std::string without_kernel(const std::string& wanted) {
  return wanted == "gptq_marlin" || wanted == "awq_marlin" ? wanted.substr(0, wanted.find('_'))
                                                           : wanted;
}

// Matrices can be rounded while they are loaded where they are plain.
void check_rounding(const ModelConfig& config, const std::filesystem::path& model_dir,
                    const LoadOptions& options) {
  const auto refuse = [&](const std::string& reason) {
    throw Failure(Error{ErrorCode::unsupported,
                        "LoadOptions::quantization " + options.quantization + ": " + reason,
                        "LoadOptions::quantization"});
  };
  if (!config.quant.method.empty() && config.quant.method != "gguf") {
    refuse(config.file.string() + " is \"" + config.quant.method +
           "\" already; only weights in 16 or 32 bits are rounded");
  }
  if (config.quant.method == "gguf" && is_mostly_packed(Checkpoint(model_dir))) {
    refuse(config.file.string() +
           " is quantized already; only weights in 16 or 32 bits are rounded");
  }
  if (options.dtype == DType::f32) {
    refuse("products with rounded weights are not float32's; use LoadOptions::dtype bfloat16");
  }
  if (options.load_format == LoadFormat::dummy) refuse("there are no weights to round");
}

void refuse_quantization(const ModelConfig& config, const std::string& wanted) {
  const QuantConfig& quant = config.quant;
  if (!wanted.empty() && without_kernel(wanted) != quant.method && bits_of(wanted) == 0) {
    const std::string found =
        quant.method.empty() ? "has no quantization_config" : "is \"" + quant.method + "\"";
    throw Failure(Error{ErrorCode::unsupported,
                        "LoadOptions::quantization " + wanted + ": " + config.file.string() + " " +
                            found +
                            "; weights are used as they are published, or rounded to int8 or int4",
                        "LoadOptions::quantization"});
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

std::unique_ptr<Model> make(const Architecture& architecture, const ModelConfig& config,
                            const std::filesystem::path& model_dir, Device& device,
                            const OpsTraits& ops, const LoadOptions& options) {
  auto weights =
      std::make_unique<Weights>(model_dir, options.load_format, options.seed, options.dtype, device,
                                config.quant.fp8, options.measure, config.quant.packed);
  weights->on_progress(options.progress);
  weights->round_matrices(bits_of(options.quantization));
  weights->divide(options.shard);
  const int native = config.max_position_embeddings,
            longest = options.max_model_len > 0 ? options.max_model_len : native;
  weights->serve({options.cache_dtype.value_or(options.dtype), longest});
  Weights& read = *weights;  // the model's, below
  auto model = architecture.make(
      {.config = config,
       .weights = std::move(weights),
       .device = device,
       .ops = ops,
       .max_model_len = longest,
       .same_bits = options.same_bits});
  const bool is_ends_alone = config.num_layers == 0;  // its layers are read by others
  if (read.checkpoint() == nullptr || is_ends_alone) return model;
  if (std::string left = check_unused(*read.checkpoint(), config); !left.empty())
    read.note(std::move(left));
  return model;
}

// "1, 2 and 4 work"
std::string sizes_that(const std::function<bool(int size)>& work) {
  constexpr int kMostRanks = 64;
  std::vector<std::string> sizes{"1"};
  for (int size = 2; size <= kMostRanks; ++size) {
    if (work(size)) sizes.push_back(std::to_string(size));
  }
  std::string text = sizes.front();
  for (std::size_t i = 1; i < sizes.size(); ++i)
    text += (i + 1 < sizes.size() ? ", " : " and ") + sizes[i];
  return sizes.size() == 1 ? "only 1 works" : text + " work";
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
  if (bits_of(options.quantization) > 0) check_rounding(config, model_dir, options);
  try {
    return make(*architecture, config, model_dir, device, ops, options);
  } catch (const Failure& failure) {
    Error error = failure.error();
    if (error.field != kTensorParallelSize) throw;
    error.detail +=
        "; " + sizes_that([&](int size) {
          return can_divide(config, model_dir, device.is_host_memory(), ops, options, size);
        });
    throw Failure(std::move(error));
  }
}

bool can_divide(const ModelConfig& config, const std::filesystem::path& model_dir,
                bool is_host_memory, const OpsTraits& ops, LoadOptions options, int size) {
  const Architecture* architecture = find_architecture(config.architecture);
  if (architecture == nullptr) return false;
  options.measure = true;
  // Parts are equal but for where they begin: of ranks that have copies, the last is another's.
  try {
    for (const int rank : {std::min(1, size - 1), size - 1}) {
      options.shard = {.rank = rank, .size = size};
      MeasuringDevice nowhere(is_host_memory);
      make(*architecture, config, model_dir, nowhere, ops, options);
    }
  } catch (const Failure&) {
    return false;
  }
  return true;
}

}  // namespace quire
