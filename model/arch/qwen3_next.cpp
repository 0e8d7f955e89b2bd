// Qwen3-Next and Qwen3.5: gated delta nets, and every few layers attention with an output gate;
// experts or an MLP behind each. Also the language half of a vision checkpoint.

#include "model/arch/architectures.h"
#include "model/layers/attention.h"
#include "model/layers/delta_net.h"
#include "model/layers/pre_norm.h"
#include "model/layers/sparse.h"

namespace quire {

namespace {

constexpr float kNormOffset = 1.f;

class Qwen3Next final : public PreNormDecoder {
 public:
  Qwen3Next(ModelSource source, std::string root)
      : PreNormDecoder(std::move(source), std::move(root), {}, kNormOffset) {
    const ModelConfig& c = config();
    for (int i = 0; i < c.num_layers; ++i) {
      const bool experts = !c.moe.layers.empty() && c.moe.layers[i];
      add_layer(i, make_mixer(i),
                make_feed_forward(weights(), layer_name(i), experts, c, load_qwen_moe),
                kNormOffset);
    }
  }

 private:
  std::unique_ptr<Mixer> make_mixer(int layer) {
    const ModelConfig& c = config();
    if (c.layer_types[layer] == LayerType::linear_attention) {
      return std::make_unique<DeltaNet>(weights(), c, layer_name(layer) + "linear_attn");
    }
    AttentionOptions attention =
        attention_options(c, layer, layer_name(layer) + "self_attn", rope());
    attention.gated = true;
    attention.norm_offset = kNormOffset;
    return std::make_unique<Attention>(weights(), attention);
  }
};

}  // namespace

std::unique_ptr<Model> make_qwen3_next(ModelSource source) {
  std::string root = find_root(*source.weights, {"model.", "model.language_model."});
  return std::make_unique<Qwen3Next>(std::move(source), std::move(root));
}

}  // namespace quire
