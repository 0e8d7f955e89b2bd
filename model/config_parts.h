#pragma once
// How config.cpp is cut: what every model has, positions, and what a family has.

#include <functional>

#include "base/json.h"
#include "model/config.h"

namespace quire {

struct Architecture;

// Limits that no published model comes near; beyond them a number is a mistake or an attack.
inline constexpr IntRange kWidth{1, 1 << 20};
inline constexpr IntRange kHeads{1, 1 << 14};
inline constexpr IntRange kLayers{1, 1 << 12};
inline constexpr IntRange kExperts{1, 1 << 14};
inline constexpr IntRange kTokens{1, 1 << 28};

// `text` as a model of this architecture; `root`, which may be the same, has the members beside it.
ModelConfig parse_config_as(const Architecture& architecture, const Json& root, const Json& text,
                            const std::filesystem::path& file);

// What `text`, of this class, means where it is silent: a JSON object.
std::string_view class_defaults_of(const Architecture& architecture, const Json& text);

// config.rope and config.rope_local; max_position_embeddings is known.
void parse_rope(ModelConfig& config, const Json& text);

// layer_types as published; false where the file has none. What "linear_attention" means depends on
// the family.
bool parse_layer_types(ModelConfig& config, const Json& text, LayerType recurrent);
// One type for every layer, another where is_other(layer).
void fill_layer_types(ModelConfig& config, LayerType usual, LayerType other,
                      const std::function<bool(int)>& is_other);
// sliding_window for all layers, none, or those from max_window_layers on.
void parse_sliding(ModelConfig& config, const Json& text);
// The same in Qwen's files, where a second field switches the window on; those with experts have
// no max_window_layers.
void parse_qwen_sliding(ModelConfig& config, const Json& text);
void parse_qwen_moe_sliding(ModelConfig& config, const Json& text);
// Local and global layers in turn: every `period`th is global.
void parse_alternating(ModelConfig& config, const Json& text, int period);
void parse_experts(ModelConfig& config, const Json& text);
// Experts in every `step`th layer from `first` on, but in none of mlp_only_layers.
void parse_expert_layers(ModelConfig& config, const Json& text);

void parse_granite(ModelConfig& config, const Json& text);  // the multipliers of all of them

// num_layers, and what the architecture's own function finds.
void parse_family(ModelConfig& config, const Architecture& architecture, const Json& text);

}  // namespace quire
