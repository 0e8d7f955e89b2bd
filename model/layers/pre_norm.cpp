#include "model/layers/pre_norm.h"

namespace quire {

void PreNormDecoder::add_layer(int layer, std::unique_ptr<Mixer> mixer,
                               std::unique_ptr<FeedForward> feed_forward, float norm_offset,
                               const NormNames& names) {
  const auto norm = [&](const std::string& name) {
    return RmsNorm(weights(), layer_name(layer) + name, config().hidden_size, config().rms_norm_eps,
                   norm_offset);
  };
  layers_.push_back({norm(names.mixer), add_mixer(std::move(mixer)), norm(names.feed_forward),
                     std::move(feed_forward)});
}

void PreNormDecoder::run_layers(TensorView hidden, TensorView residual,
                                const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const TensorView x = hidden;  // holds each norm's output on the way
  const TensorView y = context.workspace.take(DType::f32, {x.extent(0), x.extent(1)});
  const auto multiplier = static_cast<float>(config().residual_multiplier);
  const auto scale = [&] {
    if (multiplier != 1.f) context.ops.scale(y, multiplier, context.stream);
  };
  auto tap = context.taps.begin();
  const auto hand_out = [&](std::size_t layer) {
    for (; tap != context.taps.end() && tap->layer == static_cast<int>(layer); ++tap)
      context.ops.copy(tap->out, residual, context.stream);
  };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    hand_out(i);
    if (i == 0) layer.mixer_norm(x, residual, context);
    (*layer.mixer)(y, x, context);
    scale();
    layer.feed_forward_norm.add(x, residual, y, context);
    (*layer.feed_forward)(y, x, context);
    scale();
    const RmsNorm& next = i + 1 < layers_.size() ? layers_[i + 1].mixer_norm : final_norm();
    next.add(x, residual, y, context);
  }
  hand_out(layers_.size());
}

}  // namespace quire
