#pragma once
// What the decoders with experts share: in config.moe.layers a mixture, elsewhere a plain MLP.

#include <memory>
#include <string>

#include "model/layers/moe.h"

namespace quire {

// The family's way to publish one layer's mixture; `layer` is "model.layers.0.".
using LoadMoe = MoeParts (*)(Weights& weights, const std::string& layer, const ModelConfig& config);

std::unique_ptr<FeedForward> make_feed_forward(Weights& weights, const std::string& layer,
                                               bool experts, const ModelConfig& config,
                                               LoadMoe load_moe);

// mlp.gate, mlp.experts and, if the config has one, mlp.shared_experts (DeepSeek, GLM).
MoeParts load_deepseek_moe(Weights& weights, const std::string& layer, const ModelConfig& config);
// mlp.gate, mlp.experts and, if the config has one, mlp.shared_expert with its gate (Qwen).
MoeParts load_qwen_moe(Weights& weights, const std::string& layer, const ModelConfig& config);

}  // namespace quire
