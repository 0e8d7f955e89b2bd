// Qwen3 with experts in some layers; GLM-4-MoE, whose routing is DeepSeek's.

#include "model/arch/architectures.h"
#include "model/layers/attention.h"
#include "model/layers/pre_norm.h"
#include "model/layers/sparse.h"

namespace quire {

namespace {

class Qwen3Moe final : public PreNormDecoder {
 public:
  Qwen3Moe(ModelSource source, LoadMoe load_moe) : PreNormDecoder(std::move(source), "model.") {
    const ModelConfig& c = config();
    for (int i = 0; i < c.num_layers; ++i) {
      const AttentionOptions attention =
          attention_options(c, i, layer_name(i) + "self_attn", rope());
      add_layer(i, std::make_unique<Attention>(weights(), attention),
                make_feed_forward(weights(), layer_name(i), c.moe.layers[i], c, load_moe));
    }
  }
};

}  // namespace

std::unique_ptr<Model> make_qwen3_moe(ModelSource source) {
  return std::make_unique<Qwen3Moe>(std::move(source), load_qwen_moe);
}

std::unique_ptr<Model> make_glm4_moe(ModelSource source) {
  return std::make_unique<Qwen3Moe>(std::move(source), load_deepseek_moe);
}

}  // namespace quire
