#include "tests/engine/kv_plan/plan_vectors.h"

#include <map>
#include <stdexcept>

namespace quire::test {
namespace {

using simdjson::dom::element;

std::int64_t number(element object, std::string_view key, std::int64_t otherwise) {
  std::int64_t value = 0;
  return object[key].get(value) == simdjson::SUCCESS ? value : otherwise;
}

std::string text(element object, std::string_view key) {
  std::string_view value;
  return object[key].get(value) == simdjson::SUCCESS ? std::string(value) : std::string();
}

template <class T>
T lookup(const std::map<std::string, T>& table, const std::string& name) {
  const auto found = table.find(name);
  if (found == table.end()) throw std::runtime_error("unknown value in the vector: " + name);
  return found->second;
}

const std::map<std::string, KvKind> kKinds = {{"full", KvKind::full},
                                              {"sliding_window", KvKind::sliding_window},
                                              {"chunked_local", KvKind::chunked_local},
                                              {"mla", KvKind::mla},
                                              {"sliding_window_mla", KvKind::sliding_window_mla},
                                              {"mamba", KvKind::mamba},
                                              {"hidden_state", KvKind::hidden_state}};
const std::map<std::string, KvQuant> kQuants = {
    {"", KvQuant::none},
    {"none", KvQuant::none},
    {"fp8_per_tensor", KvQuant::fp8_per_tensor},
    {"int8_per_token_head", KvQuant::int8_per_token_head},
    {"fp8_per_token_head", KvQuant::fp8_per_token_head},
    {"nvfp4", KvQuant::nvfp4}};
const std::map<std::string, StateCacheMode> kModes = {{"", StateCacheMode::none},
                                                      {"none", StateCacheMode::none},
                                                      {"all", StateCacheMode::all},
                                                      {"align", StateCacheMode::align}};
const std::map<std::string, DType> kDTypes = {{"", DType::bf16},
                                              {"float32", DType::f32},
                                              {"bfloat16", DType::bf16},
                                              {"float16", DType::f16},
                                              {"uint8", DType::u8},
                                              {"int8", DType::i8},
                                              {"float8_e4m3fn", DType::fp8_e4m3}};

std::vector<StateTensor> states_of(element spec) {
  std::vector<StateTensor> states;
  simdjson::dom::array shapes;
  if (spec["shapes"].get(shapes) != simdjson::SUCCESS) return states;
  auto dtype = spec["dtypes"].get_array().begin();
  for (const element shape : shapes) {
    StateTensor state{.shape = {}, .dtype = lookup(kDTypes, std::string(std::string_view(*dtype)))};
    for (const element extent : shape.get_array()) state.shape.push_back(std::int64_t(extent));
    states.push_back(std::move(state));
    ++dtype;
  }
  return states;
}

KvSpec spec_of(element spec) {
  const auto integer = [&](std::string_view key, int otherwise = 0) {
    return static_cast<int>(number(spec, key, otherwise));
  };
  KvSpec made;
  made.kind = lookup(kKinds, text(spec, "kind"));
  made.block_size = integer("block_size");
  made.num_kv_heads = integer("num_kv_heads");
  made.head_size = integer("head_size");
  made.head_size_v = integer("head_size_v");
  made.dtype = lookup(kDTypes, text(spec, "dtype"));
  made.quant = lookup(kQuants, text(spec, "quant"));
  made.sliding_window = integer("sliding_window");
  made.attention_chunk_size = integer("attention_chunk_size");
  made.page_size_padded = static_cast<std::size_t>(number(spec, "page_size_padded", 0));
  made.mla_format =
      text(spec, "cache_dtype_str") == "fp8_ds_mla" ? MlaFormat::fp8_ds_mla : MlaFormat::plain;
  made.mla_version =
      text(spec, "model_version") == "deepseek_v4" ? MlaVersion::deepseek_v4 : MlaVersion::v3;
  made.compress_ratio = integer("compress_ratio", 1);
  made.alignment = static_cast<std::size_t>(number(spec, "alignment", 0));
  made.states = states_of(spec);
  made.num_speculative_blocks = integer("num_speculative_blocks");
  made.state_cache_mode = lookup(kModes, text(spec, "mamba_cache_mode"));
  return made;
}

std::optional<std::int64_t> optional_number(element object, std::string_view key) {
  std::int64_t value = 0;
  if (object[key].get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

}  // namespace

KvPlanInput plan_input(element vector_case) {
  const element config = vector_case["config"];
  KvPlanInput input;
  for (const element worker : vector_case["workers"].get_array()) {
    WorkerKvInput made{.layers = {}, .available_bytes = worker["available_memory_bytes"]};
    const std::int64_t set = worker["layers"];
    for (const element layer : vector_case["layer_sets"].at(set).get_array()) {
      const std::string_view name = layer.at(0), spec = layer.at(1);
      made.layers.push_back({std::string(name), spec_of(vector_case["specs"][spec])});
    }
    input.workers.push_back(std::move(made));
  }
  input.max_model_len = config["max_model_len"];
  input.auto_fit = config["auto_fit"];
  input.num_gpu_blocks_override = optional_number(config, "num_gpu_blocks_override");
  input.max_num_batched_tokens = config["max_num_batched_tokens"];
  input.enable_prefix_caching = config["enable_prefix_caching"];
  input.hybrid_manager = config["hybrid_manager"];
  input.state_cache_mode = lookup(kModes, text(config, "mamba_cache_mode"));
  input.cache_block_size = static_cast<int>(number(config, "cache_block_size", 0));
  if (const auto size = optional_number(config, "hash_block_size"))
    input.hash_block_size = static_cast<int>(*size);
  input.decode_context_parallel = static_cast<int>(number(config, "dcp", 1));
  input.prefill_context_parallel = static_cast<int>(number(config, "pcp", 1));
  input.use_eagle = config["use_eagle"];
  input.kv_connector = config["kv_connector"];
  return input;
}

std::string kind_in_vectors(const KvGroup& group) {
  if (group.mixed_kinds) return "mixed";
  // Hidden states are kept as one latent vector per token.
  if (group.spec.kind == KvKind::hidden_state) return "mla";
  for (const auto& [name, kind] : kKinds)
    if (kind == group.spec.kind) return name;
  return "unknown";
}

}  // namespace quire::test
