// OLMo2: norms after the mixer and the MLP, none before; queries and keys normed over all heads.

#include "model/arch/architectures.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"

namespace quire {

namespace {

class Olmo2 final : public CausalLm {
 public:
  explicit Olmo2(ModelSource source) : CausalLm(std::move(source), "model.") {
    const ModelConfig& c = config();
    for (int i = 0; i < c.num_layers; ++i) {
      const std::string name = layer_name(i);
      AttentionOptions attention = attention_options(c, i, name + "self_attn", rope());
      attention.qk_norm = QkNorm::whole;
      layers_.push_back(
          {add_mixer(std::make_unique<Attention>(weights(), attention)),
           RmsNorm(weights(), name + "post_attention_layernorm", c.hidden_size, c.rms_norm_eps),
           GatedMlp(weights(), name + "mlp", c.hidden_size, c.intermediate_size, c.activation),
           RmsNorm(weights(), name + "post_feedforward_layernorm", c.hidden_size, c.rms_norm_eps)});
    }
  }

 private:
  struct Layer {
    Mixer* attention;
    RmsNorm attention_norm;
    GatedMlp mlp;
    RmsNorm mlp_norm;
  };

  void run_layers(TensorView hidden, TensorView residual,
                  const ForwardContext& context) const override {
    const Workspace::Scope scope(context.workspace);
    const TensorView x = hidden;
    const TensorView y = context.workspace.take(DType::f32, {x.extent(0), x.extent(1)});
    for (const Layer& layer : layers_) {
      context.ops.copy(x, residual, context.stream);
      (*layer.attention)(y, x, context);
      layer.attention_norm(y, y, context);
      context.ops.add(residual, residual, y, context.stream);
      context.ops.copy(x, residual, context.stream);
      layer.mlp(y, x, context);
      layer.mlp_norm(y, y, context);
      context.ops.add(residual, residual, y, context.stream);
    }
    final_norm()(hidden, residual, context);
  }

  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Model> make_olmo2(ModelSource source) {
  return std::make_unique<Olmo2>(std::move(source));
}

}  // namespace quire
