#include "model/architectures.h"

#include "model/arch/architectures.h"
#include "model/arch/encoders.h"
#include "model/config_parts.h"

namespace quire {
namespace {

using namespace class_defaults;

constexpr PoolingTask kEmbeds = PoolingTask::embed, kScores = PoolingTask::score;

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", parse_sliding, make_llama},
    {"MistralForCausalLM", parse_sliding, make_llama, &kMistral},
    {"Mistral3ForConditionalGeneration", parse_sliding, make_llama, &kMistral3},
    {"Phi3ForCausalLM", parse_sliding, make_llama, &kPhi3},
    {"Qwen2ForCausalLM", parse_qwen2, make_llama, &kQwen2},
    {"Qwen3ForCausalLM", parse_qwen3, make_llama, &kQwen3},
    {"GraniteForCausalLM", parse_granite_dense, make_llama},
    {"Olmo2ForCausalLM", parse_olmo2, make_olmo2, &kOlmo2},
    {"Gemma2ForCausalLM", parse_gemma2, make_gemma, &kGemma2},
    {"Gemma3ForCausalLM", parse_gemma3, make_gemma, &kGemma3},
    {"Gemma3ForConditionalGeneration", parse_gemma3, make_gemma, &kGemma3Vision},
    {"MixtralForCausalLM", parse_mixtral, make_mixtral, &kMixtral},
    {"Qwen3MoeForCausalLM", parse_qwen3_moe, make_qwen3_moe, &kQwen3Moe},
    {"Glm4MoeForCausalLM", parse_glm4_moe, make_glm4_moe, &kGlm4Moe},
    {"GptOssForCausalLM", parse_gpt_oss, make_gpt_oss, &kGptOss},
    {"DeepseekV2ForCausalLM", parse_deepseek_v2, make_deepseek, &kDeepseekV2},
    {"DeepseekV3ForCausalLM", parse_deepseek_v3, make_deepseek, &kDeepseekV3},
    {"Qwen3NextForCausalLM", parse_qwen3_next, make_qwen3_next, &kQwen3Next},
    {"Qwen3_5ForCausalLM", parse_qwen3_5, make_qwen3_next, &kQwen35},
    {"Qwen3_5ForConditionalGeneration", parse_qwen3_5, make_qwen3_next, &kQwen35},
    {"Qwen3_5MoeForCausalLM", parse_qwen3_5_moe, make_qwen3_next, &kQwen35Moe},
    {"Qwen3_5MoeForConditionalGeneration", parse_qwen3_5_moe, make_qwen3_next, &kQwen35Moe},
    {"NemotronHForCausalLM", parse_nemotron, make_nemotron_h, &kNemotronH},
    {"GraniteMoeHybridForCausalLM", parse_granite_hybrid, make_granite_hybrid, &kGraniteHybrid},
    {"LlamaModel", parse_sliding, make_llama, nullptr, kEmbeds},
    {"MistralModel", parse_sliding, make_llama, &kMistral, kEmbeds},
    {"Qwen2Model", parse_qwen2, make_llama, &kQwen2, kEmbeds},
    {"Qwen3Model", parse_qwen3, make_llama, &kQwen3, kEmbeds},
    {"LlamaForSequenceClassification", parse_sliding, make_llama, nullptr, kScores},
    {"Qwen2ForSequenceClassification", parse_qwen2, make_llama, &kQwen2, kScores},
    {"Qwen3ForSequenceClassification", parse_qwen3, make_llama, &kQwen3, kScores},
    {"BertModel", parse_encoder_family, make_bert, &kBert, kEmbeds},
    {"RobertaModel", parse_encoder_family, make_bert, &kBert, kEmbeds},
    {"XLMRobertaModel", parse_encoder_family, make_bert, &kBert, kEmbeds},
    {"BertForSequenceClassification", parse_encoder_family, make_bert, &kBert, kScores},
    {"RobertaForSequenceClassification", parse_encoder_family, make_bert, &kBert, kScores},
    {"XLMRobertaForSequenceClassification", parse_encoder_family, make_bert, &kBert, kScores},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

}  // namespace quire
