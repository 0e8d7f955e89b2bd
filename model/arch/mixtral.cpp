// Mixtral: Mistral with experts, published as w1 (gate), w3 (up), w2 (down).

#include "model/arch/architectures.h"
#include "model/layers/attention.h"
#include "model/layers/pre_norm.h"
#include "model/layers/sparse.h"

namespace quire {

namespace {

MoeParts load_moe(Weights& weights, const std::string& layer, const ModelConfig& config) {
  const std::string name = layer + "block_sparse_moe";
  MoeParts parts;
  parts.router =
      Linear(weights, {{name + ".gate", config.moe.num_experts}}, config.hidden_size, false,
             LinearUse::router);
  parts.experts = load_experts(weights, name, config, {.gate = "w1", .up = "w3", .down = "w2"});
  return parts;
}

class Mixtral final : public PreNormDecoder {
 public:
  explicit Mixtral(ModelSource source) : PreNormDecoder(std::move(source), "model.") {
    const ModelConfig& c = config();
    for (int i = 0; i < c.num_layers; ++i) {
      add_layer(i,
                std::make_unique<Attention>(
                    weights(), attention_options(c, i, layer_name(i) + "self_attn", rope())),
                make_feed_forward(weights(), layer_name(i), c.moe.layers[i], c, load_moe));
    }
  }
};

}  // namespace

std::unique_ptr<Model> make_mixtral(ModelSource source) {
  return std::make_unique<Mixtral>(std::move(source));
}

}  // namespace quire
