#pragma once
// How config.cpp is cut: what every model has, positions, and what a family has.

#include "model/config.h"
#include "model/json_fields.h"

namespace quire {

// Limits that no published model comes near; beyond them a number is a mistake or an attack.
inline constexpr IntRange kWidth{1, 1 << 20};
inline constexpr IntRange kHeads{1, 1 << 14};
inline constexpr IntRange kLayers{1, 1 << 12};
inline constexpr IntRange kExperts{1, 1 << 14};
inline constexpr IntRange kTokens{1, 1 << 28};

// Failure with the list of what is supported.
void check_architecture(const std::string& architecture, const Fields& root);

// config.rope and config.rope_local; max_position_embeddings is known.
void parse_rope(ModelConfig& config, const Fields& text);

// layer_types and the numbers that only this architecture has; the common numbers are known.
void parse_family(ModelConfig& config, const Fields& text);

}  // namespace quire
