#include "model/architectures.h"

#include "model/arch/architectures.h"
#include "model/arch/encoders.h"
#include "model/config_parts.h"

namespace quire {
namespace {

constexpr ConfigDefaults kGemma{.tie_word_embeddings = true};
constexpr ConfigDefaults kGemma3Vision{.vocab_size = 262208,
                                       .num_heads = 8,
                                       .num_kv_heads = 4,
                                       .head_dim = 256,
                                       .max_position_embeddings = 131072,
                                       .tie_word_embeddings = true};

constexpr PoolingTask kEmbeds = PoolingTask::embed, kScores = PoolingTask::score;

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", parse_sliding, make_llama},
    {"MistralForCausalLM", parse_sliding, make_llama},
    {"Mistral3ForConditionalGeneration", parse_sliding, make_llama},
    {"Phi3ForCausalLM", parse_sliding, make_llama},
    {"Qwen2ForCausalLM", parse_qwen2, make_llama},
    {"Qwen3ForCausalLM", parse_qwen3, make_llama},
    {"GraniteForCausalLM", parse_granite_dense, make_llama},
    {"Olmo2ForCausalLM", parse_olmo2, make_olmo2},
    {"Gemma2ForCausalLM", parse_gemma2, make_gemma, kGemma},
    {"Gemma3ForCausalLM", parse_gemma3, make_gemma, kGemma},
    {"Gemma3ForConditionalGeneration", parse_gemma3, make_gemma, kGemma3Vision},
    {"MixtralForCausalLM", parse_mixtral, make_mixtral},
    {"Qwen3MoeForCausalLM", parse_qwen3_moe, make_qwen3_moe},
    {"Glm4MoeForCausalLM", parse_glm4_moe, make_glm4_moe},
    {"GptOssForCausalLM", parse_gpt_oss, make_gpt_oss},
    {"DeepseekV2ForCausalLM", parse_deepseek_v2, make_deepseek},
    {"DeepseekV3ForCausalLM", parse_deepseek_v3, make_deepseek},
    {"Qwen3NextForCausalLM", parse_qwen3_next, make_qwen3_next},
    {"Qwen3_5ForCausalLM", parse_qwen3_5, make_qwen3_next},
    {"Qwen3_5ForConditionalGeneration", parse_qwen3_5, make_qwen3_next},
    {"Qwen3_5MoeForCausalLM", parse_qwen3_5_moe, make_qwen3_next},
    {"Qwen3_5MoeForConditionalGeneration", parse_qwen3_5_moe, make_qwen3_next},
    {"NemotronHForCausalLM", parse_nemotron, make_nemotron_h},
    {"GraniteMoeHybridForCausalLM", parse_granite_hybrid, make_granite_hybrid},
    {"LlamaModel", parse_sliding, make_llama, {}, kEmbeds},
    {"MistralModel", parse_sliding, make_llama, {}, kEmbeds},
    {"Qwen2Model", parse_qwen2, make_llama, {}, kEmbeds},
    {"Qwen3Model", parse_qwen3, make_llama, {}, kEmbeds},
    {"LlamaForSequenceClassification", parse_sliding, make_llama, {}, kScores},
    {"Qwen2ForSequenceClassification", parse_qwen2, make_llama, {}, kScores},
    {"Qwen3ForSequenceClassification", parse_qwen3, make_llama, {}, kScores},
    {"BertModel", parse_encoder_family, make_bert, {}, kEmbeds},
    {"RobertaModel", parse_encoder_family, make_bert, {}, kEmbeds},
    {"XLMRobertaModel", parse_encoder_family, make_bert, {}, kEmbeds},
    {"BertForSequenceClassification", parse_encoder_family, make_bert, {}, kScores},
    {"RobertaForSequenceClassification", parse_encoder_family, make_bert, {}, kScores},
    {"XLMRobertaForSequenceClassification", parse_encoder_family, make_bert, {}, kScores},
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
