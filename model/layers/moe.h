#pragma once
// Mixture of experts: a router sends each token to a few of many MLPs; shared experts see them all.
// Ranks have the router, and of each expert a share of the inner size; they add up once, with what
// the shared experts give.

#include <memory>
#include <string>

#include "model/config.h"
#include "model/layers/block.h"
#include "model/layers/linear.h"

namespace quire {

struct Experts {
  Weight gate_up;           // [E, 2 I, H]; without a gate [E, I, H]
  Weight down;              // [E, H, I]
  TensorView gate_up_bias;  // [E, 2 I], optional
  TensorView down_bias;     // [E, H], optional
  bool gated = true;
  std::int64_t inner = 0;  // I, or the rank's share
  bool adds_up = false;    // over ranks
};

// Published names of one expert's matrices. Without a gate: `gate` is empty.
struct ExpertNames {
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
};

// name.experts.<e>.<matrix>.weight, or all experts in name.experts.gate_up_proj and .down_proj.
Experts load_experts(Weights& weights, const std::string& name, const ModelConfig& config,
                     const ExpertNames& names = {});
// All experts in two tensors, [E, 2 I, H] and [E, H, I].
Experts load_fused_experts(Weights& weights, const std::string& gate_up, const std::string& down,
                           const ModelConfig& config);
// gpt-oss: gate and up rows take turns; bf16 matrices are stored transposed, MXFP4 ones in blocks.
Experts load_gpt_oss_experts(Weights& weights, const std::string& name, const ModelConfig& config);

struct MoeParts {
  Linear router;
  TensorView correction_bias;  // f32 [E], optional: counts for the choice only
  Experts experts;
  Linear to_latent, from_latent;        // optional: around the routed experts
  std::unique_ptr<FeedForward> shared;  // optional; LinearSplit::addends
  Linear shared_gate;                   // optional: [1, H], sigmoid on the shared output
  GroupScore group_score = GroupScore::best;
  Activation activation = Activation::silu;
};

class Moe final : public FeedForward {
 public:
  Moe(const ModelConfig& config, DType dtype, MoeParts parts);

  void operator()(const LayerOutput& out, const LayerInput& x,
                  const ForwardContext& context) const override;

 private:
  void route(TensorView ids, TensorView weights, TensorView x, const ForwardContext& context) const;
  void run_experts(TensorView out, TensorView x, TensorView ids, TensorView weights,
                   const ForwardContext& context) const;
  void add_shared(TensorView out, TensorView x, const ForwardContext& context) const;

  MoeConfig config_;
  MoeShape shape_;
  int hidden_size_;
  MoeParts parts_;
  float swiglu_alpha_;
  float swiglu_limit_;
};

}  // namespace quire
