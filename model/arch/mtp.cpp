// Multi-token prediction: a module behind the target's layers, inside its checkpoint. A projection
// of the next token's embedding and the target's last hidden state, each under a norm, then one
// layer of the target's kind and a norm. All steps run the same module.

#include "model/arch/drafts.h"
#include "model/layers/attention.h"
#include "model/layers/mla_attention.h"
#include "model/layers/norm.h"
#include "model/layers/sparse.h"

namespace quire {

namespace {

// Published names of a module's parts.
struct MtpNames {
  std::string embedding_norm, hidden_norm, projection, norm;
  std::string layer;  // "mtp.layers.0."
};

class Mtp final : public DraftBase {
 public:
  // At position 0 there is no token before: some families put zeros for the embedding there.
  struct Style {
    float norm_offset = 0.f;
    bool zero_first = false;
    bool gated = false;
    LoadMoe load_moe = load_qwen_moe;
  };

  Mtp(DraftParts parts, const MtpNames& names, const Style& style, bool is_latent, bool sparse)
      : DraftBase(std::move(parts)), zero_first_(style.zero_first) {
    const ModelConfig& c = config();
    const auto norm = [&](const std::string& name) {
      return RmsNorm(weights(), name, c.hidden_size, c.rms_norm_eps, style.norm_offset);
    };
    embedding_norm_ = norm(names.embedding_norm);
    hidden_norm_ = norm(names.hidden_norm);
    projection_ = Linear(weights(), {{names.projection, c.hidden_size}},
                         2 * std::int64_t{c.hidden_size}, false, LinearUse::residual);
    mixer_norm_ = norm(names.layer + "input_layernorm");
    mixer_ = add_mixer(make_mixer(names.layer + "self_attn", style, is_latent));
    feed_forward_norm_ = norm(names.layer + "post_attention_layernorm");
    feed_forward_ = make_feed_forward(weights(), names.layer, sparse, c, style.load_moe);
    norm_ = norm(names.norm);
  }

  void forward(TensorView out, TensorView ids, TensorView states, std::span<const int> starts,
               const LastTokens& last, const ForwardContext& context) override {
    const Workspace::Scope scope(context.workspace);
    const std::int64_t tokens = ids.extent(0), width = hidden_size();
    TensorView x = context.workspace.take(dtype(), {tokens, width});
    const TensorView normed = context.workspace.take(dtype(), {tokens, width});
    TensorView residual = context.workspace.take(DType::f32, {tokens, width});
    const TensorView y = context.workspace.take(DType::f32, {out.extent(0), width});
    embed(x, ids, context);
    for (const int start : zero_first_ ? starts : std::span<const int>()) {
      const TensorView row = x.rows(start, start + 1);
      device().zero(row.data(), row.bytes(), context.stream);
    }
    embedding_norm_(x, x, context);
    hidden_norm_(normed, states, context);
    projection_(residual, side_by_side(x, normed, context), context);
    mixer_norm_(x, residual, context);
    mixer_->of_last(y, x, last, context);
    residual = pick(residual, last, context);
    x = x.rows(0, out.extent(0));
    feed_forward_norm_.add(x, residual, y, context);
    (*feed_forward_)(y, x, context);
    norm_.add(out, residual, y, context);
  }

 private:
  std::unique_ptr<Mixer> make_mixer(const std::string& name, const Style& style, bool is_latent) {
    const ModelConfig& c = config();
    if (is_latent)  // it attends for last tokens alone
      return std::make_unique<MlaAttention>(weights(), c, name, rope(), ops(),
                                            LatentForms::absorbed);
    AttentionOptions attention = attention_options(c, 0, name, rope());
    attention.window = 0;
    attention.gated = style.gated;
    attention.norm_offset = style.norm_offset;
    return std::make_unique<Attention>(weights(), attention);
  }

  bool zero_first_;
  RmsNorm embedding_norm_, hidden_norm_, mixer_norm_, feed_forward_norm_, norm_;
  Linear projection_;
  Mixer* mixer_ = nullptr;
  std::unique_ptr<FeedForward> feed_forward_;
};

}  // namespace

namespace {

// As the layer behind the last, with the target's kind of attention and experts.
std::unique_ptr<DraftModel> make_layer_mtp(DraftParts parts, bool is_latent) {
  const std::string layer = "model.layers." + std::to_string(parts.config.num_layers) + ".";
  const MtpNames names{.embedding_norm = layer + "enorm",
                       .hidden_norm = layer + "hnorm",
                       .projection = layer + "eh_proj",
                       .norm = layer + "shared_head.norm",
                       .layer = layer};
  return std::make_unique<Mtp>(std::move(parts), names,
                               Mtp::Style{.zero_first = true, .load_moe = load_deepseek_moe},
                               is_latent, /*sparse=*/true);
}

}  // namespace

std::unique_ptr<DraftModel> make_deepseek_mtp(DraftParts parts) {
  return make_layer_mtp(std::move(parts), /*is_latent=*/true);
}

std::unique_ptr<DraftModel> make_glm4_mtp(DraftParts parts) {
  return make_layer_mtp(std::move(parts), /*is_latent=*/false);
}

// The module's layer counts as layer 0 where only some layers have experts.
std::unique_ptr<DraftModel> make_qwen3_next_mtp(DraftParts parts) {
  const MtpNames names{.embedding_norm = "mtp.pre_fc_norm_embedding",
                       .hidden_norm = "mtp.pre_fc_norm_hidden",
                       .projection = "mtp.fc",
                       .norm = "mtp.norm",
                       .layer = "mtp.layers.0."};
  const bool sparse = !parts.config.moe.layers.empty() && parts.config.moe.layers[0];
  return std::make_unique<Mtp>(std::move(parts), names, Mtp::Style{.norm_offset = 1.f, .gated = true},
                               /*is_latent=*/false, sparse);
}

}  // namespace quire
