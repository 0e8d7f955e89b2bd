// Mamba2 beside attention: Nemotron-H, whose blocks are one thing each (Mamba2, attention, MLP or
// experts), and Granite 4, whose layers are Granite's with Mamba2 for most mixers.

#include "model/arch/architectures.h"
#include "model/layers/attention.h"
#include "model/layers/mamba2.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "model/layers/pre_norm.h"
#include "model/layers/residual_stream.h"

namespace quire {

namespace {

MoeParts load_nemotron_moe(Weights& weights, const std::string& name, const ModelConfig& config) {
  const MoeConfig& moe = config.moe;
  MoeParts parts;
  parts.router = Linear(weights, {{name + ".gate", moe.num_experts}}, config.hidden_size, false,
                        LinearUse::router);
  parts.correction_bias =
      weights.load(name + ".gate.e_score_correction_bias", {moe.num_experts}, DType::f32);
  parts.group_score = GroupScore::sum_of_best_two;
  parts.experts =
      load_experts(weights, name, config, {.gate = "", .up = "up_proj", .down = "down_proj"});
  if (moe.latent_size > 0) {
    parts.to_latent = Linear(weights, {{name + ".fc1_latent_proj", moe.latent_size}},
                             config.hidden_size, config.mlp_bias);
    parts.from_latent = Linear(weights, {{name + ".fc2_latent_proj", config.hidden_size}},
                               moe.latent_size, config.mlp_bias && adds_bias(weights.shard()),
                               LinearUse::residual);
  }
  parts.shared =
      std::make_unique<Mlp>(weights, name + ".shared_experts", config.hidden_size,
                            moe.shared_intermediate_size, config.activation, config.mlp_bias,
                            LinearSplit::addends);
  parts.activation = config.activation;
  return parts;
}

class NemotronH final : public CausalLm {
 public:
  explicit NemotronH(ModelSource source)
      : CausalLm(std::move(source), "backbone.",
                 {.embedding = "embeddings", .norm = "norm_f", .lm_head = "lm_head"}) {
    const ModelConfig& c = config();
    for (int i = 0; i < c.num_layers; ++i) {
      const std::string mixer = layer_name(i) + "mixer";
      Block block{RmsNorm(weights(), layer_name(i) + "norm", c.hidden_size, c.rms_norm_eps),
                  nullptr, nullptr};
      switch (c.layer_types[i]) {
        case LayerType::mamba:
          block.mixer =
              add_mixer(std::make_unique<Mamba2>(weights(), c, mixer, c.mamba2.num_groups));
          break;
        case LayerType::mlp:
          block.feed_forward = std::make_unique<Mlp>(weights(), mixer, c.hidden_size,
                                                     c.intermediate_size, c.activation, c.mlp_bias);
          break;
        case LayerType::moe:
          block.feed_forward =
              std::make_unique<Moe>(c, dtype(), load_nemotron_moe(weights(), mixer, c));
          break;
        default:
          block.mixer = add_mixer(
              std::make_unique<Attention>(weights(), attention_options(c, i, mixer, rope())));
      }
      blocks_.push_back(std::move(block));
    }
  }

 private:
  struct Block {
    RmsNorm norm;
    Mixer* mixer;  // or
    std::unique_ptr<FeedForward> feed_forward;
  };

  void run_layers(TensorView hidden, TensorView residual,
                  const ForwardContext& context) const override {
    ResidualStream stream(residual, hidden, /*products_add=*/true, context);
    stream.norm(blocks_.front().norm);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      if (block.mixer != nullptr) {
        (*block.mixer)(stream.output(), stream.input(), context);
      } else {
        (*block.feed_forward)(stream.output(), stream.input(), context);
      }
      stream.add_and_norm(i + 1 < blocks_.size() ? blocks_[i + 1].norm : final_norm());
    }
    stream.input().rows(context);
  }

  std::vector<Block> blocks_;
};

// input_linear is gate and up, output_linear is down.
GatedMlp load_granite_shared(Weights& weights, const std::string& layer,
                             const ModelConfig& config, LinearSplit sum) {
  const int width = config.moe.shared_intermediate_size;
  return GatedMlp(
      Linear(weights, gate_up_halves(weights, layer + "shared_mlp.input_linear", width),
             config.hidden_size, false, LinearUse::inner, LinearSplit::rows),
      Linear(weights, {{layer + "shared_mlp.output_linear", config.hidden_size}}, width, false,
             LinearUse::residual, sum),
      config.activation);
}

MoeParts load_granite_moe(Weights& weights, const std::string& layer, const ModelConfig& config) {
  const std::string name = layer + "block_sparse_moe.";
  MoeParts parts;
  parts.router = Linear(weights, {{name + "router.layer", config.moe.num_experts}},
                        config.hidden_size, false, LinearUse::router);
  parts.experts = load_fused_experts(weights, name + "input_linear.weight",
                                     name + "output_linear.weight", config);
  parts.shared = std::make_unique<GatedMlp>(
      load_granite_shared(weights, layer, config, LinearSplit::addends));
  parts.activation = config.activation;
  return parts;
}

class GraniteHybrid final : public PreNormDecoder {
 public:
  explicit GraniteHybrid(ModelSource source) : PreNormDecoder(std::move(source), "model.") {
    for (int i = 0; i < config().num_layers; ++i) {
      add_layer(i, make_mixer(i), make_feed_forward(i));
    }
  }

 private:
  std::unique_ptr<Mixer> make_mixer(int layer) {
    const ModelConfig& c = config();
    if (c.layer_types[layer] == LayerType::mamba) {
      return std::make_unique<Mamba2>(weights(), c, layer_name(layer) + "mamba",
                                      /*norm_groups=*/1);
    }
    return std::make_unique<Attention>(
        weights(), attention_options(c, layer, layer_name(layer) + "self_attn", rope()));
  }

  std::unique_ptr<FeedForward> make_feed_forward(int layer) {
    const ModelConfig& c = config();
    if (c.moe.num_experts == 0) {
      return std::make_unique<GatedMlp>(
          load_granite_shared(weights(), layer_name(layer), c, LinearSplit::columns));
    }
    return std::make_unique<Moe>(c, dtype(), load_granite_moe(weights(), layer_name(layer), c));
  }
};

}  // namespace

std::unique_ptr<Model> make_nemotron_h(ModelSource source) {
  return std::make_unique<NemotronH>(std::move(source));
}

std::unique_ptr<Model> make_granite_hybrid(ModelSource source) {
  return std::make_unique<GraniteHybrid>(std::move(source));
}

}  // namespace quire
