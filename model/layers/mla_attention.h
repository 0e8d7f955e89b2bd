#pragma once
// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a token's cache is one latent vector
// and one rotated key for all heads. The projections from the latent to keys and values are
// absorbed into query and output, so prefill and decode read the same pages. Ranks have equal shares
// of the heads; the projections to the latents, and the cache, are the same on all of them.

#include <optional>
#include <string>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/linear.h"
#include "model/layers/norm.h"
#include "model/layers/rope.h"

namespace quire {

class MlaAttention final : public Mixer {
 public:
  // `name` is "model.layers.0.self_attn".
  MlaAttention(Weights& weights, const ModelConfig& config, const std::string& name,
               const Rope& rope);

  LayerKvSpec cache_spec(const KvSpecOptions& options) const override;
  void bind(const LayerCache& cache) override;
  bool lacks_scale() const override;
  void operator()(const LayerOutput& out, const LayerInput& x,
                  const ForwardContext& context) const override;

 private:
  // Queries against cache rows [T, heads, latent + rope].
  void project_queries(TensorView absorbed, const LayerInput& x,
                       const ForwardContext& context) const;
  void attend(TensorView out, TensorView q, const ForwardContext& context) const;
  int row() const { return config_.kv_lora_rank + config_.qk_rope_head_dim; }

  std::string name_;
  MlaConfig config_;
  int num_heads_;
  float scale_;
  Rope rope_;
  Linear q_;       // from the hidden state, or from the query's latent
  Linear q_down_;  // optional: to the query's latent
  RmsNorm q_norm_;
  Linear kv_down_;  // [latent + rope, hidden]
  RmsNorm kv_norm_;
  TensorView key_up_;    // [heads, latent, nope]
  TensorView value_up_;  // [heads, value, latent]
  Linear output_;
  TensorView cache_;  // [kernel blocks, kernel block size, latent + rope]
  std::optional<CacheScale> published_scale_;
  float cache_scale_ = 1.f;  // of the cache bound: latent and rotated key alike, as vLLM has it
  int group_ = 0;
};

}  // namespace quire
