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

// "dense" is how compressed-tensors writes that nothing is left out.
void need_dense(const Json& quantization) {
  const auto sparsity = quantization.find({"sparsity_config"});
  const auto format = sparsity && sparsity->is_object() ? sparsity->text({"format"}) : std::nullopt;
  if (format == "dense") return;
  if (format) unsupported("sparsity_config.format", in_quotes(*format), "\"dense\"");
  need_absent(quantization, "", "sparsity_config");
}

// GPTQModel's exceptions by module: the head may be left as it is, which its tensors say too.
void need_only_head_excepted(const Json& quantization) {
  const auto dynamic = quantization.find({"dynamic"});
  if (!dynamic || !dynamic->is_object()) return need_absent(quantization, "", "dynamic");
  for (const auto& [pattern, change] : dynamic->members()) {
    if (pattern.starts_with("-:") && pattern.ends_with("lm_head")) continue;
    unsupported("dynamic", in_quotes(std::string(pattern)), "\"-:.*lm_head\"");
  }
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

bool can_be_read(const std::string& pattern) {
  if (!pattern.starts_with("re:")) return true;
  try {
    std::regex(pattern.substr(3));
    return true;
  } catch (const std::regex_error&) {
    return false;
  }
}

void check_patterns(const std::vector<std::string>& patterns, const std::string& field) {
  for (const std::string& pattern : patterns) {
    if (!can_be_read(pattern)) {
      unsupported(field, in_quotes(pattern), "ECMAScript regular expressions");
    }
  }
}

// Of integers the files say which they are: what cannot be read only spoils an estimate.
std::vector<std::string> readable_patterns(const Json& quantization, Json::Names names) {
  auto patterns = quantization.texts(names).value_or(std::vector<std::string>{});
  std::erase_if(patterns, [](const std::string& pattern) { return !can_be_read(pattern); });
  return patterns;
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
  const std::string format = quantization.text({"format"}).value_or("");
  if (format != "float-quantized") {
    unsupported("format", in_quotes(format),
                "\"float-quantized\", \"pack-quantized\", \"int-quantized\"");
  }
  need_dense(quantization);
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
  check_patterns(fp8.ignored, "ignore");
  return fp8;
}

int parse_bits(const Json& fields, const std::string& prefix, Json::Names names) {
  const int bits = fields.integer(names, {1, 64}).value_or(0);
  if (bits != 4 && bits != 8) {
    unsupported(prefix + std::string(*names.begin()), std::to_string(bits), "4, 8");
  }
  return bits;
}

// −1: a row is one group. AWQ's own files say "q_group_size".
int parse_group_size(const Json& fields, const std::string& prefix) {
  const int size = fields.integer({"group_size", "q_group_size"}, {-1, 1 << 20}).value_or(-1);
  if (size == -1 || (size >= 16 && size % 16 == 0)) return size == -1 ? 0 : size;
  unsupported(prefix + "group_size", std::to_string(size), "-1 or a multiple of 16");
}

// https://github.com/AutoGPTQ/AutoGPTQ and GPTQModel: zeros are stored minus one but in "gptq_v2".
PackedConfig parse_gptq(const Json& quantization) {
  const std::string format = quantization.text({"checkpoint_format"}).value_or("gptq");
  if (format != "gptq" && format != "gptq_v2") {
    unsupported("checkpoint_format", in_quotes(format), "\"gptq\", \"gptq_v2\"");
  }
  need_only_head_excepted(quantization);
  return {.layout = PackedLayout::gptq,
          .bits = parse_bits(quantization, "", {"bits"}),
          .group_size = parse_group_size(quantization, ""),
          .symmetric = quantization.boolean({"sym"}).value_or(true),
          .act_order = quantization.boolean({"desc_act"}).value_or(false),
          .zeros_minus_one = format == "gptq",
          .head = quantization.boolean({"lm_head"}).value_or(false)};
}

// https://github.com/casper-hansen/AutoAWQ
PackedConfig parse_awq(const Json& quantization) {
  const std::string version = quantization.text({"version"}).value_or("gemm");
  if (version != "gemm" && version != "GEMM") {
    unsupported("version", in_quotes(version), "\"gemm\"");
  }
  if (!quantization.boolean({"zero_point"}).value_or(true)) {
    unsupported("zero_point", "false", "true");
  }
  const int bits = parse_bits(quantization, "", {"bits", "w_bit"});
  if (bits != 4) unsupported("bits", std::to_string(bits), "4");
  return {.layout = PackedLayout::awq,
          .bits = bits,
          .group_size = parse_group_size(quantization, ""),
          .symmetric = false,
          .ignored = readable_patterns(quantization, {"modules_to_not_convert"})};
}

// compressed-tensors' integers: "pack-quantized", or bytes with inputs of 8 bits.
PackedConfig parse_packed_tensors(const Json& quantization, bool bytes) {
  need_dense(quantization);
  need_absent(quantization, "", "transform_config");
  const auto groups = quantization.object({"config_groups"});
  if (!groups || groups->members().size() != 1) unsupported("config_groups", "not one", "one group");
  const std::string name((*groups->members().begin()).name);
  const std::string prefix = "config_groups." + name + ".";
  const auto group = groups->object({name});
  const auto weights = group ? group->object({"weights"}) : std::nullopt;
  if (!weights) unsupported(prefix + "weights", "null", "integers of 4 or 8 bits");
  need_absent(*group, prefix, "output_activations");
  const std::string inside = prefix + "weights.";
  need_text(*weights, inside, "type", "int");
  const std::string strategy = weights->text({"strategy"}).value_or("tensor");
  if (strategy != "channel" && (strategy != "group" || bytes)) {
    unsupported(inside + "strategy", in_quotes(strategy),
                bytes ? "\"channel\"" : "\"channel\", \"group\"");
  }
  PackedConfig packed{.layout = bytes ? PackedLayout::int8 : PackedLayout::compressed,
                      .bits = parse_bits(*weights, inside, {"num_bits"}),
                      .group_size = strategy == "group" ? parse_group_size(*weights, inside) : 0,
                      .symmetric = weights->boolean({"symmetric"}).value_or(true),
                      .act_order = weights->text({"actorder"}).value_or("") == "group",
                      .ignored = readable_patterns(quantization, {"ignore"}),
                      .head = true};
  if (!bytes) {
    need_absent(*group, prefix, "input_activations");
    return packed;
  }
  if (packed.bits != 8) unsupported(inside + "num_bits", std::to_string(packed.bits), "8");
  if (!packed.symmetric) unsupported(inside + "symmetric", "false", "true");
  const auto input = group->object({"input_activations"});
  if (!input) return packed;
  need_text(*input, prefix + "input_activations.", "type", "int");
  if (!input->boolean({"symmetric"}).value_or(true)) {
    unsupported(prefix + "input_activations.symmetric", "false", "true");
  }
  return packed;
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
  check_patterns(fp8.ignored, "modules_to_not_convert");
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
  // AutoFP8 writes "static": scales are published, and what the cache holds is for a flag to say.
  const auto word = quant.find({"kv_cache_scheme"});
  if (word && word->is_string() && quant.text({"quant_method"}) == "fp8") return {};
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

// "quantization_config.bits" where it stands.
std::string place_of(const Json& quantization, const std::string& field) {
  const std::string name = field.substr(field.find('.') + 1), path = quantization.path();
  if (path == "compression_config") return path + "." + name;
  const std::string file = quantization.file().filename().string();
  return file == "config.json" ? field : file + " beside it: " + name;
}

}  // namespace

bool names_module(const std::vector<std::string>& list, std::string_view module) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& entry) {
    if (entry.starts_with("re:")) {
      return std::regex_search(module.begin(), module.end(), std::regex(entry.substr(3)),
                               std::regex_constants::match_continuous);
    }
    return module == entry || module.ends_with("." + entry) || module.starts_with(entry + ".");
  });
}

bool Fp8Config::ignores(std::string_view module) const { return names_module(ignored, module); }

QuantConfig parse_quantization(const Json& quantization, std::string_view method) {
  QuantConfig config;
  config.kv_cache_dtype = parse_kv_cache_scheme(quantization);
  if (only_cache(quantization)) return config;
  config.method = quantization.text({"quant_method"}).value_or(std::string(method));
  try {
    const std::string format = quantization.text({"format"}).value_or("");
    if (config.method == "gptq") {
      config.packed = parse_gptq(quantization);
    } else if (config.method == "awq") {
      config.packed = parse_awq(quantization);
    } else if (config.method == "compressed-tensors" &&
               (format == "pack-quantized" || format == "int-quantized")) {
      config.packed = parse_packed_tensors(quantization, format == "int-quantized");
    } else if (config.method == "compressed-tensors") {
      config.fp8 = parse_compressed_tensors(quantization);
    } else if (config.method == "fp8") {
      config.fp8 = parse_fp8(quantization);
    } else if (config.method != "mxfp4") {
      unsupported("quant_method", in_quotes(config.method),
                  "\"compressed-tensors\", \"fp8\", \"gptq\", \"awq\", \"mxfp4\" experts of gpt-oss");
    }
  } catch (const Unsupported& scheme) {
    config.unsupported_field = place_of(quantization, scheme.field);
    config.unsupported_reason = scheme.reason;
  }
  return config;
}

}  // namespace quire
