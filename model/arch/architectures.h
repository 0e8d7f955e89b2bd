#pragma once
// What the rows of model/architectures.cpp name: how a family reads its part of config.json, and
// how it is built.

#include <memory>

#include "model/layers/causal_lm.h"

namespace quire {

class Json;

// Each finds layer_types and the numbers that it alone has;
// the common numbers and the rope are known.
void parse_qwen2(ModelConfig& config, const Json& text);
void parse_qwen3(ModelConfig& config, const Json& text);
void parse_olmo2(ModelConfig& config, const Json& text);
void parse_granite_dense(ModelConfig& config, const Json& text);
void parse_gemma2(ModelConfig& config, const Json& text);
void parse_gemma3(ModelConfig& config, const Json& text);
void parse_mixtral(ModelConfig& config, const Json& text);
void parse_qwen3_moe(ModelConfig& config, const Json& text);
void parse_glm4_moe(ModelConfig& config, const Json& text);
void parse_gpt_oss(ModelConfig& config, const Json& text);
void parse_deepseek_v2(ModelConfig& config, const Json& text);
void parse_deepseek_v3(ModelConfig& config, const Json& text);
void parse_qwen3_next(ModelConfig& config, const Json& text);
void parse_qwen3_5(ModelConfig& config, const Json& text);
void parse_qwen3_5_moe(ModelConfig& config, const Json& text);
void parse_granite_hybrid(ModelConfig& config, const Json& text);
void parse_nemotron(ModelConfig& config, const Json& text);

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
