#pragma once
// The encoders among what the rows of model/architectures.cpp name.

#include <memory>

#include "model/layers/causal_lm.h"

namespace quire {

class Json;

void parse_encoder_family(ModelConfig& config, const Json& text);
std::unique_ptr<Model> make_bert(ModelSource source);

}  // namespace quire
