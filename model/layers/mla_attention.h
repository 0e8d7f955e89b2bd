#pragma once
// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a token's cache is one latent vector
// and one rotated key for all heads. The projections from the latent to keys and values are
// absorbed into query and output; or, for requests with so many new tokens that this takes fewer
// multiplications, and where the backend has it, made of what the cache has, theirs too: both forms
// read the same pages. Ranks have equal shares of the heads; the projections to the latents, and
// the cache, are the same on all of them.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/linear.h"
#include "model/layers/norm.h"
#include "model/layers/rope.h"

namespace quire {

// What a layer has weights and memory for: prompts are expanded where that takes fewer
// multiplications and the backend can, or nothing ever is.
enum class LatentForms : std::uint8_t { absorbed, by_count };

class MlaAttention final : public Mixer {
 public:
  // `name` is "model.layers.0.self_attn".
  MlaAttention(Weights& weights, const ModelConfig& config, const std::string& name,
               const Rope& rope, const OpsTraits& ops, LatentForms forms);

  LayerKvSpec cache_spec(const KvSpecOptions& options) const override;
  void bind(const LayerCache& cache) override;
  bool lacks_scale() const override;
  void operator()(const LayerOutput& out, const LayerInput& x,
                  const ForwardContext& context) const override {
    attend_last(out, x, {}, context);
  }
  void of_last(TensorView out, TensorView x, const LastTokens& last,
               const ForwardContext& context) const override {
    attend_last(out, x, last, context);
  }

 private:
  // Requests [begin, end) of the step, their tokens, and the most that one of them has.
  struct Run {
    std::int64_t begin, end, first_token, end_token;
    int max_query_len, max_seq_len;
  };
  // Of a step's requests: who is expanded, and runs of the others.
  struct Split {
    std::vector<LatentPrompt> prompts;
    std::vector<Run> others;
  };
  void attend_last(const LayerOutput& out, const LayerInput& x, const LastTokens& last,
                   const ForwardContext& context) const;
  void load_up(Weights& weights, const OpsTraits& ops, LatentForms forms, std::int64_t heads);
  Split split(std::int64_t num_tokens, const ForwardContext& context) const;
  // [T, heads, nope + rope], rotated.
  void project_queries(TensorView q, const LayerInput& x, const ForwardContext& context) const;
  // Values [T, heads, value] of the tokens of these requests.
  void attend_absorbed(TensorView values, TensorView q, std::span<const Run> runs,
                       const LastTokens& last, const ForwardContext& context) const;
  void attend_expanded(TensorView values, TensorView q, std::span<const LatentPrompt> prompts,
                       const ForwardContext& context) const;
  LatentShape shape() const;  // once key_up_ is there
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
  TensorView up_;        // [heads, nope + value, latent], with value_up_; empty: never expanded
  ExpansionCost expansion_cost_;
  Linear output_;
  TensorView cache_;  // [kernel blocks, kernel block size, latent + rope]
  std::optional<CacheScale> published_scale_;
  float cache_scale_ = 1.f;  // of the cache bound: latent and rotated key alike, as vLLM has it
  int group_ = 0;
};

}  // namespace quire
