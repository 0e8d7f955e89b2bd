#include "model/layers/moe.h"

namespace quire {

Moe::Moe(const ModelConfig& config, DType dtype, MoeParts parts)
    : config_(config.moe),
      shape_{.experts = config.moe.num_experts,
             .top_k = config.moe.num_experts_per_tok,
             .hidden = config.moe.latent_size > 0 ? config.moe.latent_size : config.hidden_size,
             .intermediate = static_cast<int>(parts.experts.inner),
             .gated = parts.experts.gated,
             .dtype = dtype,
             .fp8 = is_fp8(parts.experts.gate_up.format)},
      hidden_size_(config.hidden_size),
      parts_(std::move(parts)),
      swiglu_alpha_(static_cast<float>(config.swiglu_alpha)),
      swiglu_limit_(static_cast<float>(config.swiglu_limit)) {}

void Moe::operator()(const LayerOutput& output, const LayerInput& input,
                     const ForwardContext& context) const {
  const TensorView out = output.update(), x = input.rows(context);
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.extent(0);
  const TensorView ids = context.workspace.take(DType::i32, {tokens, shape_.top_k});
  const TensorView weights = context.workspace.take(DType::f32, {tokens, shape_.top_k});
  route(ids, weights, x, context);

  if (parts_.to_latent.empty()) {
    run_experts(out, x, ids, weights, context);
  } else {
    const TensorView low = context.workspace.take(x.dtype(), {tokens, shape_.hidden});
    const TensorView mixed = context.workspace.take(x.dtype(), {tokens, shape_.hidden});
    parts_.to_latent(low, x, context);
    run_experts(mixed, low, ids, weights, context);
    parts_.from_latent(out, mixed, context);
  }
  if (parts_.shared != nullptr) add_shared(out, x, context);
  if (parts_.experts.adds_up) add_up(out, context);
}

void Moe::run_experts(TensorView out, TensorView x, TensorView ids, TensorView weights,
                      const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const auto bytes =
      context.ops.traits().moe_workspace_bytes(static_cast<int>(x.extent(0)), shape_);
  MoeExpertsArgs args;
  args.out = out;
  args.x = x;
  args.ids = ids;
  args.weights = weights;
  args.gate_up = parts_.experts.gate_up;
  args.down = parts_.experts.down;
  args.gate_up_bias = parts_.experts.gate_up_bias;
  args.down_bias = parts_.experts.down_bias;
  args.activation = parts_.activation;
  args.gated = parts_.experts.gated;
  args.swiglu_alpha = swiglu_alpha_;
  args.swiglu_limit = swiglu_limit_;
  args.workspace = context.workspace.take(DType::u8, {static_cast<std::int64_t>(bytes)});
  context.ops.moe_experts(args, context.stream);
}

void Moe::route(TensorView ids, TensorView weights, TensorView x,
                const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const TensorView logits = context.workspace.take(DType::f32, {x.extent(0), shape_.experts});
  parts_.router(logits, x, context);
  MoeRouteArgs args;
  args.ids = ids;
  args.weights = weights;
  args.logits = logits;
  args.bias = parts_.correction_bias;
  args.score = config_.score == RouterScore::sigmoid ? RouteScore::sigmoid : RouteScore::softmax;
  args.group_score = parts_.group_score;
  args.groups = config_.n_group;
  args.top_groups = config_.topk_group;
  args.renormalize = config_.norm_topk_prob;
  args.scale = static_cast<float>(config_.routed_scaling_factor);
  context.ops.moe_route(args, context.stream);
}

void Moe::add_shared(TensorView out, TensorView x, const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const TensorView y = context.workspace.take(DType::f32, {x.extent(0), hidden_size_});
  (*parts_.shared)(y, x, context);
  if (!parts_.shared_gate.empty()) {
    const TensorView gate = context.workspace.take(x.dtype(), {x.extent(0), 1});
    parts_.shared_gate(gate, x, context);
    context.ops.sigmoid_gate(y, gate, context.stream);
  }
  context.ops.add(out, out, y, context.stream);
}

}  // namespace quire
