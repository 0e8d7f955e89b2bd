#pragma once
// What every language model here shares: token embedding, layers, final norm, vocabulary head. An
// architecture adds the layers.

#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/linear.h"
#include "model/layers/norm.h"
#include "model/layers/rope.h"
#include "model/registry.h"
#include "model/weights.h"

namespace quire {

// What an architecture is built from.
struct ModelSource {
  const ModelConfig& config;
  std::unique_ptr<Weights> weights;
  Device& device;
  const OpsTraits& ops;
  int max_model_len;
  bool same_bits = false;  // LoadOptions::same_bits
};

// Published names of the parts outside the layers.
struct HeadNames {
  std::string embedding = "embed_tokens";  // after the root
  std::string norm = "norm";
  std::string lm_head = "lm_head";  // from the top
};

class CausalLm : public Model {
 public:
  int vocab_size() const override { return config_.vocab_size; }
  int hidden_size() const override { return config_.hidden_size; }
  DType dtype() const override { return weights_->dtype(); }
  std::size_t weight_bytes() const override { return weights_->bytes(); }
  std::size_t mapped_bytes() const override { return weights_->mapped_bytes(); }
  std::vector<std::string> notes() const override { return weights_->notes(); }
  int position_offset(int num_prompt_tokens) const override {
    return rope_.position_offset(num_prompt_tokens);
  }
  std::size_t workspace_bytes(int num_tokens, int num_rows) const override;
  std::vector<LayerKvSpec> kv_specs(const KvSpecOptions& options) const override;
  void bind_cache(std::span<const LayerCache> layers) override;
  int num_unscaled_layers() const override;
  void embed(TensorView out, TensorView ids, const ForwardContext& context) override;
  void forward(TensorView hidden, TensorView ids, const ForwardContext& context) override;
  void logits(TensorView logits, TensorView hidden, const ForwardContext& context) override;

 protected:
  // `root` is the prefix of the text model's tensors.
  CausalLm(ModelSource source, std::string root, const HeadNames& names = {},
           float norm_offset = 0.f);

  // From the embedded tokens in residual, f32 [T, hidden], to the output of the final norm in
  // hidden.
  virtual void run_layers(TensorView hidden, TensorView residual,
                          const ForwardContext& context) const = 0;

  const ModelConfig& config() const { return config_; }
  Weights& weights() { return *weights_; }
  const std::string& root() const { return root_; }  // "model."
  std::string layer_name(int layer) const {
    return root_ + "layers." + std::to_string(layer) + ".";
  }
  const Rope& rope() const { return rope_; }
  const OpsTraits& ops() const { return ops_; }
  const RmsNorm& final_norm() const { return norm_; }
  int max_model_len() const { return max_model_len_; }
  bool same_bits() const { return same_bits_; }

  // Registers a mixer and gives it back; in layer order.
  Mixer* add_mixer(std::unique_ptr<Mixer> mixer);

 private:
  void embed_tokens(TensorView out, TensorView ids, const ForwardContext& context) const;
  void embed_and_run(TensorView hidden, TensorView ids, const ForwardContext& context) const;
  void head(TensorView logits, TensorView hidden, const ForwardContext& context) const;
  // Of the rank's part of the vocabulary.
  void own_head(TensorView logits, TensorView hidden, const ForwardContext& context) const;

  ModelConfig config_;
  std::unique_ptr<Weights> weights_;
  std::string root_;
  StreamRef stream_;
  const OpsTraits& ops_;
  int max_model_len_;
  bool same_bits_;
  Rope rope_;
  bool looks_up_in_head_;  // which is packed and tied
  TensorView embedding_;  // [vocab, hidden]; empty: rows of lm_head_
  RmsNorm norm_;
  Linear lm_head_;  // [vocab, hidden]; empty: the embedding
  float embedding_multiplier_ = 1.f;
  std::vector<std::unique_ptr<Mixer>> mixers_;
  int num_groups_ = 1;
};

// The first prefix under which the embedding is published.
std::string find_root(const Weights& weights, std::initializer_list<std::string> candidates,
                      const std::string& embedding = "embed_tokens");

}  // namespace quire
