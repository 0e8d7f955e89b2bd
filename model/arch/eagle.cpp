// EAGLE (arXiv 2401.15077): fc over the next token's embedding and the target's last hidden state,
// then Llama layers, the first without a norm before its attention. There is no norm behind them:
// the target's head reads what the last layer gives, and so does the next step.

#include "model/arch/drafts.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/norm.h"

namespace quire {

namespace {

class Eagle final : public DraftBase {
 public:
  explicit Eagle(DraftParts parts) : DraftBase(std::move(parts)) {
    const ModelConfig& c = config();
    const std::string root = weights().has("model.fc.weight") ? "model." : "";
    load_embedding(root + "embed_tokens.weight");
    fc_ = Linear(weights(), {{root + "fc", c.hidden_size}}, 2 * std::int64_t{c.hidden_size},
                 weights().has(root + "fc.bias"), LinearUse::residual);
    if (const std::string norm = root + "layers.0.input_layernorm.weight"; weights().has(norm))
      throw Failure(ErrorCode::unsupported,
                    c.file.string() + ": tensor \"" + norm +
                        "\" is there, but the first layer of an EAGLE head has no norm before its "
                        "attention; heads with one are not supported");
    if (const std::string norm = root + "norm.weight"; weights().has(norm))
      throw Failure(ErrorCode::unsupported,
                    c.file.string() + ": tensor \"" + norm +
                        "\" is there, but an EAGLE head has no norm behind its layers; heads with "
                        "one are not supported");
    load_head("lm_head.weight", c.vocab_size);
    for (int i = 0; i < c.num_layers; ++i) add_layer(root + "layers." + std::to_string(i) + ".", i);
  }

  void forward(TensorView out, TensorView ids, TensorView states, std::span<const int>,
               const LastTokens& last, const ForwardContext& context) override {
    const Workspace::Scope scope(context.workspace);
    const std::int64_t tokens = ids.extent(0), width = hidden_size();
    TensorView x = context.workspace.take(dtype(), {tokens, width});
    TensorView residual = context.workspace.take(DType::f32, {tokens, width});
    TensorView y = context.workspace.take(DType::f32, {tokens, width});
    embed(x, ids, context);
    fc_(residual, side_by_side(x, states, context), context);
    context.ops.copy(x, residual, context.stream);
    for (const Layer& layer : layers_) {
      if (!layer.mixer_norm.empty()) layer.mixer_norm.add(x, residual, y, context);
      if (&layer == &layers_.back()) {
        y = y.rows(0, out.extent(0));
        layer.mixer->of_last(y, x, last, context);
        residual = pick(residual, last, context);
        x = x.rows(0, out.extent(0));
      } else {
        (*layer.mixer)(y, x, context);
      }
      layer.feed_forward_norm.add(x, residual, y, context);
      (*layer.feed_forward)(y, x, context);
    }
    context.ops.add(y, residual, y, context.stream);
    context.ops.copy(out, y, context.stream);
  }

 private:
  struct Layer {
    RmsNorm mixer_norm;  // none in the first
    Mixer* mixer;
    RmsNorm feed_forward_norm;
    std::unique_ptr<FeedForward> feed_forward;
  };

  void add_layer(const std::string& name, int index) {
    const ModelConfig& c = config();
    Layer layer;
    if (index > 0)
      layer.mixer_norm =
          RmsNorm(weights(), name + "input_layernorm", c.hidden_size, c.rms_norm_eps);
    layer.mixer = add_mixer(std::make_unique<Attention>(
        weights(), attention_options(c, index, name + "self_attn", rope())));
    layer.feed_forward_norm =
        RmsNorm(weights(), name + "post_attention_layernorm", c.hidden_size, c.rms_norm_eps);
    layer.feed_forward = std::make_unique<GatedMlp>(weights(), name + "mlp", c.hidden_size,
                                                    c.intermediate_size, c.activation, c.mlp_bias);
    layers_.push_back(std::move(layer));
  }

  Linear fc_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<DraftModel> make_eagle(DraftParts parts) {
  return std::make_unique<Eagle>(std::move(parts));
}

}  // namespace quire
