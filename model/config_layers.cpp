#include <algorithm>

#include "model/config_parts.h"

namespace quire {

namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

LayerType layer_type_of(const Json& text, const std::string& name, LayerType recurrent) {
  if (is_one_of(name, {"full_attention", "attention"})) return LayerType::full_attention;
  if (name == "sliding_attention") return LayerType::sliding_attention;
  if (name == "linear_attention") return recurrent;
  if (name == "mamba") return LayerType::mamba;
  if (name == "mlp") return LayerType::mlp;
  if (name == "moe") return LayerType::moe;
  text.fail_at("layer_types", "\"" + name + "\" is not supported", ErrorCode::unsupported);
}

}  // namespace

bool parse_layer_types(ModelConfig& config, const Json& text, LayerType recurrent) {
  const auto names = text.texts({"layer_types", "layers_block_type"});
  if (!names) return false;
  if (static_cast<int>(names->size()) != config.num_layers) {
    text.fail_at("layer_types", "has " + std::to_string(names->size()) + " entries for " +
                                    std::to_string(config.num_layers) + " layers");
  }
  for (const std::string& name : *names) {
    config.layer_types.push_back(layer_type_of(text, name, recurrent));
  }
  return true;
}

void fill_layer_types(ModelConfig& config, LayerType usual, LayerType other,
                      const std::function<bool(int)>& is_other) {
  for (int i = 0; i < config.num_layers; ++i) {
    config.layer_types.push_back(is_other(i) ? other : usual);
  }
}

namespace {

void parse_window(ModelConfig& config, const Json& text, bool used_by_default, int first_layer) {
  const auto window = text.integer({"sliding_window"}, kTokens);
  // A window that no context fills is none.
  const bool used = window && *window < config.longest_context &&
                    text.boolean({"use_sliding_window"}).value_or(used_by_default);
  config.sliding_window = window.value_or(0);
  if (!parse_layer_types(config, text, LayerType::linear_attention)) {
    fill_layer_types(config, LayerType::full_attention, LayerType::sliding_attention,
                     [&](int i) { return used && i >= first_layer; });
  }
}

}  // namespace

void parse_sliding(ModelConfig& config, const Json& text) { parse_window(config, text, true, 0); }

void parse_qwen_sliding(ModelConfig& config, const Json& text) {
  parse_window(config, text, false, text.integer({"max_window_layers"}, {0, 1 << 12}).value_or(28));
}

void parse_qwen_moe_sliding(ModelConfig& config, const Json& text) {
  parse_window(config, text, false, 0);
}

void parse_alternating(ModelConfig& config, const Json& text, int period) {
  config.sliding_window = text.need_integer({"sliding_window"}, kTokens);
  if (!parse_layer_types(config, text, LayerType::linear_attention)) {
    fill_layer_types(config, LayerType::sliding_attention, LayerType::full_attention,
                     [&](int i) { return (i + 1) % period == 0; });
  }
}

}  // namespace quire
