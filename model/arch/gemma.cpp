// Gemma2 and Gemma3: sandwich norms (before and after each part, weights stored minus one), local
// and global layers in turn, soft caps (2), norms of queries and keys and a rope of its own for
// local layers (3).

#include "model/arch/architectures.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/residual_stream.h"

namespace quire {

namespace {

constexpr float kNormOffset = 1.f;

class Gemma final : public CausalLm {
 public:
  Gemma(ModelSource source, std::string root)
      : CausalLm(std::move(source), std::move(root), {}, kNormOffset) {
    const ModelConfig& c = config();
    const Rope local =
        c.rope_local ? Rope(weights(), *c.rope_local, c.head_dim, max_model_len()) : rope();
    for (int i = 0; i < c.num_layers; ++i) {
      const bool sliding = c.layer_types[i] == LayerType::sliding_attention;
      AttentionOptions attention =
          attention_options(c, i, layer_name(i) + "self_attn", sliding ? local : rope());
      attention.norm_offset = kNormOffset;
      layers_.push_back({norm(i, "input_layernorm"),
                         add_mixer(std::make_unique<Attention>(weights(), attention)),
                         norm(i, "post_attention_layernorm"), norm(i, "pre_feedforward_layernorm"),
                         GatedMlp(weights(), layer_name(i) + "mlp", c.hidden_size,
                                  c.intermediate_size, c.activation),
                         norm(i, "post_feedforward_layernorm")});
    }
  }

 private:
  struct Layer {
    RmsNorm before_attention;
    Mixer* attention;
    RmsNorm after_attention, before_mlp;
    GatedMlp mlp;
    RmsNorm after_mlp;
  };

  RmsNorm norm(int layer, const char* name) {
    return RmsNorm(weights(), layer_name(layer) + name, config().hidden_size, config().rms_norm_eps,
                   kNormOffset);
  }

  void run_layers(TensorView hidden, TensorView residual,
                  const ForwardContext& context) const override {
    ResidualStream stream(residual, hidden, /*products_add=*/false, context);
    const TensorView y = stream.update();
    stream.norm(layers_.front().before_attention);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      (*layer.attention)(stream.output(), stream.input(), context);
      layer.after_attention(y, y, context);
      stream.add_and_norm(layer.before_mlp);
      layer.mlp(stream.output(), stream.input(), context);
      layer.after_mlp(y, y, context);
      stream.add_and_norm(i + 1 < layers_.size() ? layers_[i + 1].before_attention : final_norm());
    }
  }

  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Model> make_gemma(ModelSource source) {
  std::string root =
      find_root(*source.weights, {"model.", "model.language_model.", "language_model.model."});
  return std::make_unique<Gemma>(std::move(source), std::move(root));
}

}  // namespace quire
