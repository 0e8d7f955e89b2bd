#include "model/quant_config.h"

#include <algorithm>
#include <regex>

#include "backend/ops_moe.h"
#include "base/json.h"

namespace quire {

namespace {

// Leaves the parsing of a scheme that is not supported.
struct Unsupported {
  std::string field, reason;
};

[[noreturn]] void unsupported(std::string field, const std::string& value,
                              const std::string& supported) {
  throw Unsupported{"quantization_config." + std::move(field),
                    value + " is not supported (" + supported + ")"};
}

std::string in_quotes(const std::string& text) { return "\"" + text + "\""; }

void need_text(const Json& fields, const std::string& prefix, std::string_view name,
               std::string_view value) {
  const std::string found = fields.text({name}).value_or("");
  if (found != value) {
    unsupported(prefix + std::string(name), in_quotes(found), in_quotes(std::string(value)));
  }
}

void need_absent(const Json& fields, const std::string& prefix, std::string_view name) {
  const auto found = fields.find({name});
  if (!found) return;
  const bool empty_object = found->is_object() && found->members().empty();
  if (!empty_object) unsupported(prefix + std::string(name), "a value", "null");
}

void need_block(const Json& fields, const std::string& prefix, std::string_view name) {
  const std::vector<std::int32_t> sizes = fields.integers({name}, {1, 1 << 20});
  if (sizes == std::vector<std::int32_t>{kFp8Block, kFp8Block}) return;
  std::string text = "[";
  for (const std::int32_t size : sizes) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  unsupported(prefix + std::string(name), text + "]", "[128, 128]");
}

void check_patterns(const std::vector<std::string>& patterns, const std::string& field) {
  for (const std::string& pattern : patterns) {
    if (!pattern.starts_with("re:")) continue;
    try {
      std::regex(pattern.substr(3));
    } catch (const std::regex_error&) {
      unsupported(field, in_quotes(pattern), "ECMAScript regular expressions");
    }
  }
}

// 8-bit floats: { "num_bits": 8, "type": "float", "symmetric": true }.
void need_fp8(const Json& fields, const std::string& prefix) {
  const int bits = fields.integer({"num_bits"}, {1, 64}).value_or(0);
  if (bits != 8) unsupported(prefix + "num_bits", std::to_string(bits), "8");
  need_text(fields, prefix, "type", "float");
  if (!fields.boolean({"symmetric"}).value_or(true)) {
    unsupported(prefix + "symmetric", "false", "true");
  }
}

Fp8Scope weight_scope(const Json& weights, const std::string& prefix) {
  need_fp8(weights, prefix);
  const std::string strategy = weights.text({"strategy"}).value_or("tensor");
  if (strategy == "tensor") return Fp8Scope::tensor;
  if (strategy == "channel") return Fp8Scope::channel;
  if (strategy != "block") {
    unsupported(prefix + "strategy", in_quotes(strategy), "\"tensor\", \"channel\", \"block\"");
  }
  need_block(weights, prefix, "block_structure");
  return Fp8Scope::block;
}

bool input_is_static(const Json& group, const std::string& prefix, Fp8Scope scope) {
  const auto input = group.object({"input_activations"});
  if (!input) {
    unsupported(prefix + "input_activations", "null", "8-bit floats, dynamic or per tensor");
  }
  const std::string inside = prefix + "input_activations.";
  need_fp8(*input, inside);
  if (input->boolean({"dynamic"}).value_or(false)) return false;
  const std::string strategy = input->text({"strategy"}).value_or("tensor");
  if (strategy != "tensor") {
    unsupported(inside + "strategy", in_quotes(strategy), "\"tensor\" where dynamic is false");
  }
  if (scope == Fp8Scope::block) {
    unsupported(inside + "dynamic", "false", "true beside blocks of weights");
  }
  return true;
}

// https://github.com/vllm-project/compressed-tensors: one group of Linear modules in e4m3.
Fp8Config parse_compressed_tensors(const Json& quantization) {
  need_text(quantization, "", "format", "float-quantized");
  need_absent(quantization, "", "sparsity_config");
  need_absent(quantization, "", "transform_config");
  const auto groups = quantization.object({"config_groups"});
  if (!groups) unsupported("config_groups", "null", "one group");
  if (groups->members().size() != 1) {
    unsupported("config_groups", std::to_string(groups->members().size()) + " groups", "one group");
  }
  const std::string name((*groups->members().begin()).name);
  const std::string prefix = "config_groups." + name + ".";
  const auto group = groups->object({name});
  if (!group) unsupported(prefix + "weights", "null", "8-bit floats");
  const auto targets = group->texts({"targets"}).value_or(std::vector<std::string>{});
  if (targets != std::vector<std::string>{"Linear"}) {
    unsupported(prefix + "targets", targets.empty() ? "[]" : in_quotes(targets.front()) + ", …",
                "[\"Linear\"]");
  }
  need_absent(*group, prefix, "output_activations");
  const auto weights = group->object({"weights"});
  if (!weights) unsupported(prefix + "weights", "null", "8-bit floats");
  Fp8Config fp8{.scope = weight_scope(*weights, prefix + "weights."),
                .scale_suffix = "_scale",
                .static_input = false,
                .ignored = quantization.texts({"ignore"}).value_or(std::vector<std::string>{})};
  fp8.static_input = input_is_static(*group, prefix, fp8.scope);
  check_patterns(fp8.ignored, "quantization_config.ignore");
  return fp8;
}

// Hugging Face's and DeepSeek's: blocks, or one scale for a matrix.
Fp8Config parse_fp8(const Json& quantization) {
  const std::string format = quantization.text({"fmt"}).value_or("e4m3");
  if (format != "e4m3") unsupported("fmt", in_quotes(format), "\"e4m3\"");
  const std::string scheme = quantization.text({"activation_scheme"}).value_or("dynamic");
  if (scheme != "dynamic" && scheme != "static") {
    unsupported("activation_scheme", in_quotes(scheme), "\"dynamic\", \"static\"");
  }
  const bool blocks = quantization.has({"weight_block_size"});
  if (blocks) need_block(quantization, "", "weight_block_size");
  if (blocks && scheme == "static") {
    unsupported("activation_scheme", "\"static\"", "\"dynamic\" beside weight_block_size");
  }
  Fp8Config fp8{.scope = blocks ? Fp8Scope::block : Fp8Scope::tensor,
                .scale_suffix = blocks ? "_scale_inv" : "_scale",
                .static_input = scheme == "static",
                .ignored = quantization.texts({"modules_to_not_convert", "ignored_layers"})
                               .value_or(std::vector<std::string>{})};
  check_patterns(fp8.ignored, "quantization_config.modules_to_not_convert");
  return fp8;
}

// compressed-tensors names the layers it packed in groups; without any, weights are as they are.
bool only_cache(const Json& quant) {
  const auto groups = quant.find({"config_groups"});
  return quant.text({"quant_method"}) == "compressed-tensors" && groups && groups->is_object() &&
         groups->members().empty();
}

// As compressed-tensors and ModelOpt describe it: a float of 8 bits, one scale for a layer's keys
// and one for its values.
std::optional<DType> parse_kv_cache_scheme(const Json& quant) {
  const auto scheme = quant.object({"kv_cache_scheme"});
  if (!scheme) return {};
  const std::string type = scheme->text({"type"}).value_or("");
  const int bits = scheme->integer({"num_bits"}).value_or(0);
  const bool one_scale = scheme->text({"strategy"}).value_or("tensor") == "tensor" &&
                         !scheme->boolean({"dynamic"}).value_or(false) &&
                         scheme->boolean({"symmetric"}).value_or(true);
  if (type == "float" && bits == 8 && one_scale) return DType::fp8_e4m3;
  quant.fail_at("kv_cache_scheme",
                "only type float with 8 bits is supported, symmetric and with one static scale a "
                "tensor",
                ErrorCode::unsupported);
}

}  // namespace

bool Fp8Config::ignores(std::string_view module) const {
  return std::any_of(ignored.begin(), ignored.end(), [&](const std::string& entry) {
    if (entry.starts_with("re:")) {
      return std::regex_search(module.begin(), module.end(), std::regex(entry.substr(3)),
                               std::regex_constants::match_continuous);
    }
    return module == entry || module.ends_with("." + entry) || module.starts_with(entry + ".");
  });
}

QuantConfig parse_quantization(const Json& quantization) {
  QuantConfig config;
  config.kv_cache_dtype = parse_kv_cache_scheme(quantization);
  if (only_cache(quantization)) return config;
  config.method = quantization.text({"quant_method"}).value_or("unknown");
  try {
    if (config.method == "compressed-tensors") {
      config.fp8 = parse_compressed_tensors(quantization);
    } else if (config.method == "fp8") {
      config.fp8 = parse_fp8(quantization);
    } else if (config.method != "mxfp4") {
      unsupported("quant_method", in_quotes(config.method),
                  "\"compressed-tensors\" of 8-bit floats, \"fp8\", \"mxfp4\" experts of gpt-oss");
    }
  } catch (const Unsupported& scheme) {
    config.unsupported_field = scheme.field;
    config.unsupported_reason = scheme.reason;
  }
  return config;
}

}  // namespace quire
