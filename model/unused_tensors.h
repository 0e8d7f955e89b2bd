#pragma once
// Tensors of a checkpoint that the model did not look for: a model without them may be another one.

#include <string>

#include "model/checkpoint.h"
#include "model/config.h"

namespace quire {

// Once the model is made of the checkpoint. Throws Failure for adapters' matrices, for layers that
// config.json, or a GGUF file's metadata, does not have, and for weights of its layers that nothing
// reads. Else what else is left over, for whoever runs this; empty: nothing that matters.
std::string check_unused(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace quire
