#pragma once
// Grouped-query attention over the paged cache, with what the families add: biases, norms of
// queries and keys, windows, soft caps, sinks, an output gate. Ranks have equal shares of the
// heads.

#include <cstdint>
#include <optional>
#include <string>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/linear.h"
#include "model/layers/norm.h"
#include "model/layers/rope.h"

namespace quire {

enum class QkNorm : std::uint8_t {
  none,
  per_head,  // Qwen3, Gemma3
  whole,     // OLMo2: over all heads together
};

struct AttentionOptions {
  std::string name;  // "model.layers.0.self_attn"
  int hidden_size = 0;
  int input_size = 0;  // of what queries, keys and values are made of; 0: hidden_size
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  double scale = 0.0;
  double soft_cap = 0.0;
  int window = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  QkNorm qk_norm = QkNorm::none;
  double norm_eps = 0.0;
  float norm_offset = 0.f;
  bool gated = false;  // q_proj gives a query and a gate per head: output · sigmoid(gate)
  bool sinks = false;
  Rope rope;
};

// What config.json says of layer `layer`; families change the rest.
AttentionOptions attention_options(const ModelConfig& config, int layer, std::string name,
                                   const Rope& rope);

class Attention final : public Mixer {
 public:
  Attention(Weights& weights, const AttentionOptions& options);

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
  void attend_last(const LayerOutput& out, const LayerInput& x, const LastTokens& last,
                   const ForwardContext& context) const;
  void norm_whole(TensorView q, TensorView k, const ForwardContext& context) const;
  // Norms by head, rotation, and the cache's new rows.
  HeadArgs heads_of(TensorView q, TensorView k, TensorView v, const ForwardContext& context) const;
  AttentionArgs attention_of(TensorView out, TensorView q, const LastTokens& last,
                             const ForwardContext& context) const;

  AttentionOptions options_;  // with the heads that the rank has
  Shard shard_;
  Linear qkv_;  // queries, gates, keys, values
  Linear output_;
  RmsNorm q_norm_, k_norm_;
  TensorView sinks_;              // f32 [heads]
  TensorView k_cache_, v_cache_;  // [kernel blocks, kernel block size, kv heads, head dim]
  std::optional<CacheScale> published_scale_;
  CacheScale cache_scale_;  // of the cache bound
  AttentionShape shape_;    // of what the operator's workspace is for
  int group_ = 0;
};

}  // namespace quire
