#include "model/layers/pre_norm.h"

#include "model/layers/residual_stream.h"

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
  const auto multiplier = static_cast<float>(config().residual_multiplier);
  ResidualStream stream(residual, hidden, /*products_add=*/multiplier == 1.f, context);
  const auto scale = [&] {
    if (multiplier != 1.f) context.ops.scale(stream.update(), multiplier, context.stream);
  };
  auto tap = context.taps.begin();
  const auto hand_out = [&](std::size_t layer) {
    for (; tap != context.taps.end() && tap->layer == static_cast<int>(layer); ++tap)
      context.ops.copy(tap->out, stream.sum(), context.stream);
  };
  stream.norm(layers_.front().mixer_norm);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    hand_out(i);
    (*layer.mixer)(stream.output(), stream.input(), context);
    scale();
    stream.add_and_norm(layer.feed_forward_norm);
    (*layer.feed_forward)(stream.output(), stream.input(), context);
    scale();
    stream.add_and_norm(i + 1 < layers_.size() ? layers_[i + 1].mixer_norm : final_norm());
  }
  hand_out(layers_.size());
  stream.input().rows(context);
}

}  // namespace quire
