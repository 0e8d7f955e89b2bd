#pragma once
// One factory per family of architectures; registry.cpp maps published names to them.

#include <memory>

#include "model/layers/causal_lm.h"

namespace quire {

std::unique_ptr<Model> make_llama(ModelSource source);

}  // namespace quire
