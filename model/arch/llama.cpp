// Llama and the dense models of its shape: Mistral (sliding window), Qwen2 (biases on q, k, v),
// Qwen3 (norms of queries and keys), Phi3 (fused projections), Granite (multipliers).

#include "model/arch/architectures.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/pre_norm.h"

namespace quire {

namespace {

class Llama final : public PreNormDecoder {
 public:
  explicit Llama(ModelSource source, std::string root)
      : PreNormDecoder(std::move(source), std::move(root)) {
    const ModelConfig& c = config();
    for (int i = 0; i < c.num_layers; ++i) {
      const AttentionOptions attention =
          attention_options(c, i, layer_name(i) + "self_attn", rope());
      add_layer(i, std::make_unique<Attention>(weights(), attention),
                std::make_unique<GatedMlp>(weights(), layer_name(i) + "mlp", c.hidden_size,
                                           c.intermediate_size, c.activation, c.mlp_bias));
    }
  }
};

}  // namespace

std::unique_ptr<Model> make_llama(ModelSource source) {
  std::string root =
      find_root(*source.weights, {"model.", "model.language_model.", "language_model.model."});
  return std::make_unique<Llama>(std::move(source), std::move(root));
}

}  // namespace quire
