#pragma once
// One factory per family of architectures; registry.cpp maps published names to them.

#include <memory>

#include "model/layers/causal_lm.h"

namespace quire {

std::unique_ptr<Model> make_llama(ModelSource source);
std::unique_ptr<Model> make_olmo2(ModelSource source);
std::unique_ptr<Model> make_gemma(ModelSource source);
std::unique_ptr<Model> make_mixtral(ModelSource source);
std::unique_ptr<Model> make_qwen3_moe(ModelSource source);
std::unique_ptr<Model> make_glm4_moe(ModelSource source);
std::unique_ptr<Model> make_gpt_oss(ModelSource source);
std::unique_ptr<Model> make_deepseek(ModelSource source);
std::unique_ptr<Model> make_qwen3_next(ModelSource source);
std::unique_ptr<Model> make_nemotron_h(ModelSource source);
std::unique_ptr<Model> make_granite_hybrid(ModelSource source);

}  // namespace quire
