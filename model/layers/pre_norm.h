#pragma once
// The decoder that most architectures are: x += mixer(norm x); x += feed_forward(norm x).

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/layers/causal_lm.h"

namespace quire {

// Published names of a layer's two norms.
struct NormNames {
  std::string mixer = "input_layernorm";
  std::string feed_forward = "post_attention_layernorm";
};

class PreNormDecoder : public CausalLm {
 public:
  bool hands_out_streams() const override { return true; }

 protected:
  using CausalLm::CausalLm;

  void add_layer(int layer, std::unique_ptr<Mixer> mixer, std::unique_ptr<FeedForward> feed_forward,
                 float norm_offset = 0.f, const NormNames& names = {});
  void run_layers(TensorView hidden, TensorView residual,
                  const ForwardContext& context) const override;

 private:
  struct Layer {
    RmsNorm mixer_norm;
    Mixer* mixer;
    RmsNorm feed_forward_norm;
    std::unique_ptr<FeedForward> feed_forward;
  };
  std::vector<Layer> layers_;
};

}  // namespace quire
