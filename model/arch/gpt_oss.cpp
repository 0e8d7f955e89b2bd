// gpt-oss: local and global layers in turn, a sink per head, biases everywhere, experts with a
// clamped SwiGLU in bfloat16 or MXFP4.

#include "model/arch/architectures.h"
#include "model/layers/attention.h"
#include "model/layers/pre_norm.h"
#include "model/layers/sparse.h"

namespace quire {

namespace {

MoeParts load_moe(Weights& weights, const std::string& layer, const ModelConfig& config) {
  MoeParts parts;
  parts.router = Linear(weights, {{layer + "mlp.router", config.moe.num_experts}},
                        config.hidden_size, /*bias=*/true, LinearUse::router);
  parts.experts = load_gpt_oss_experts(weights, layer + "mlp", config);
  parts.activation = Activation::clamped_swiglu;
  return parts;
}

class GptOss final : public PreNormDecoder {
 public:
  explicit GptOss(ModelSource source) : PreNormDecoder(std::move(source), "model.") {
    const ModelConfig& c = config();
    for (int i = 0; i < c.num_layers; ++i) {
      AttentionOptions attention = attention_options(c, i, layer_name(i) + "self_attn", rope());
      attention.sinks = true;
      add_layer(i, std::make_unique<Attention>(weights(), attention),
                make_feed_forward(weights(), layer_name(i), c.moe.layers[i], c, load_moe));
    }
  }
};

}  // namespace

std::unique_ptr<Model> make_gpt_oss(ModelSource source) {
  return std::make_unique<GptOss>(std::move(source));
}

}  // namespace quire
