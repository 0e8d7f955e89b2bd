#pragma once
// What every draft model here shares: weights, rotary table, attention layers and their cache, the
// target's embedding and head.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/draft_model.h"
#include "model/layers/block.h"
#include "model/layers/rope.h"
#include "model/weights.h"

namespace quire {

// What a draft model is built from.
struct DraftParts {
  ModelConfig config;  // of its layers
  const ModelConfig& target_config;
  Model& target;
  std::unique_ptr<Weights> weights;
  std::filesystem::path directory;
  Device& device;
  const OpsTraits& ops;
  int max_model_len;
  bool measure;
};

class DraftBase : public DraftModel {
 public:
  int vocab_size() const override { return target_.vocab_size(); }
  int hidden_size() const override { return config_.hidden_size; }
  int target_width() const override { return target_.hidden_size(); }
  DType dtype() const override { return weights_->dtype(); }
  std::span<const int> stream_layers() const override { return {}; }
  std::size_t weight_bytes() const override { return weights_->bytes(); }
  std::size_t mapped_bytes() const override { return weights_->mapped_bytes(); }
  std::size_t workspace_bytes(int num_tokens, int num_rows) const override;
  std::vector<LayerKvSpec> kv_specs(const KvSpecOptions& options) const override;
  void bind_cache(std::span<const LayerCache> layers) override;
  void combine(TensorView states, TensorView features, const ForwardContext& context) override;
  void logits(TensorView logits, TensorView states, const ForwardContext& context) override;
  TensorView target_ids() const override { return {}; }

 protected:
  explicit DraftBase(DraftParts parts);

  const ModelConfig& config() const { return config_; }
  Weights& weights() { return *weights_; }
  Model& target() const { return target_; }
  Device& device() const { return device_; }
  const Rope& rope() const { return rope_; }
  const OpsTraits& ops() const { return ops_; }
  // Registers a layer's mixer and gives it back; in layer order.
  Mixer* add_mixer(std::unique_ptr<Mixer> mixer);
  // The target's, unless the checkpoint publishes this one.
  void load_embedding(const std::string& name);
  // Likewise; of so many words, which are not always the target's.
  void load_head(const std::string& name, int vocab_size);

  // out [T, hidden] in dtype().
  void embed(TensorView out, TensorView ids, const ForwardContext& context) const;
  // x [T, …] itself where all tokens are wanted, else [R, …] in the workspace.
  static TensorView pick(TensorView x, const LastTokens& last, const ForwardContext& context);
  // [T, widths of a and b]: a, then b, in the workspace.
  TensorView side_by_side(TensorView a, TensorView b, const ForwardContext& context) const;

  // How wide what the target gives is.
  std::int64_t features() const;

 private:
  ModelConfig config_;
  Model& target_;
  std::unique_ptr<Weights> weights_;
  Device& device_;
  const OpsTraits& ops_;
  Rope rope_;
  TensorView embedding_, head_;  // [vocab, hidden]; empty: the target's
  std::vector<std::unique_ptr<Mixer>> mixers_;
  int num_groups_ = 1;
};

}  // namespace quire
