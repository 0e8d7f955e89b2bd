// DeepSeek-V2 and V3: latent attention; the first layers dense, then experts in groups beside
// shared ones.

#include "model/arch/architectures.h"
#include "model/layers/mla_attention.h"
#include "model/layers/pre_norm.h"
#include "model/layers/sparse.h"

namespace quire {

namespace {

class DeepSeek final : public PreNormDecoder {
 public:
  explicit DeepSeek(ModelSource source) : PreNormDecoder(std::move(source), "model.") {
    const ModelConfig& c = config();
    for (int i = 0; i < c.num_layers; ++i) {
      add_layer(i,
                std::make_unique<MlaAttention>(
                    weights(), c, layer_name(i) + "self_attn", rope(), ops(),
                    same_bits() ? LatentForms::absorbed : LatentForms::by_count),
                make_feed_forward(weights(), layer_name(i), c.moe.layers[i], c, load_deepseek_moe));
    }
  }
};

}  // namespace

std::unique_ptr<Model> make_deepseek(ModelSource source) {
  return std::make_unique<DeepSeek>(std::move(source));
}

}  // namespace quire
