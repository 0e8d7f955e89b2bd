#include "model/layers/sparse.h"

#include "model/layers/mlp.h"

namespace quire {

std::unique_ptr<FeedForward> make_feed_forward(Weights& weights, const std::string& layer,
                                               bool experts, const ModelConfig& config,
                                               LoadMoe load_moe) {
  if (experts) {
    return std::make_unique<Moe>(config, weights.dtype(), load_moe(weights, layer, config));
  }
  return std::make_unique<GatedMlp>(weights, layer + "mlp", config.hidden_size,
                                    config.intermediate_size, config.activation, config.mlp_bias);
}

MoeParts load_deepseek_moe(Weights& weights, const std::string& layer, const ModelConfig& config) {
  const MoeConfig& moe = config.moe;
  MoeParts parts;
  parts.router = Linear(weights, {{layer + "mlp.gate", moe.num_experts}}, config.hidden_size, false,
                        LinearUse::router);
  if (moe.score == RouterScore::sigmoid) {
    parts.correction_bias =
        weights.load(layer + "mlp.gate.e_score_correction_bias", {moe.num_experts}, DType::f32);
    parts.group_score = GroupScore::sum_of_best_two;
  }
  parts.experts = load_experts(weights, layer + "mlp", config);
  if (moe.shared_intermediate_size > 0) {
    parts.shared = std::make_unique<GatedMlp>(weights, layer + "mlp.shared_experts",
                                              config.hidden_size, moe.shared_intermediate_size,
                                              config.activation, config.mlp_bias,
                                              LinearSplit::addends);
  }
  return parts;
}

MoeParts load_qwen_moe(Weights& weights, const std::string& layer, const ModelConfig& config) {
  const MoeConfig& moe = config.moe;
  MoeParts parts;
  parts.router = Linear(weights, {{layer + "mlp.gate", moe.num_experts}}, config.hidden_size, false,
                        LinearUse::router);
  parts.experts = load_experts(weights, layer + "mlp", config);
  if (moe.shared_intermediate_size > 0) {
    parts.shared =
        std::make_unique<GatedMlp>(weights, layer + "mlp.shared_expert", config.hidden_size,
                                   moe.shared_intermediate_size, config.activation,
                                   /*bias=*/false, LinearSplit::addends);
    parts.shared_gate =
        Linear(weights, {{layer + "mlp.shared_expert_gate", 1}}, config.hidden_size, false);
  }
  return parts;
}

}  // namespace quire
