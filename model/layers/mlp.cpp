#include "model/layers/mlp.h"

namespace quire {

std::vector<LinearPart> gate_up_halves(const Weights& weights, const std::string& name,
                                       std::int64_t width) {
  if (weights.shard().whole()) return {{name, 2 * width}};
  return {{name, 2 * width, rows_of({0, width})}, {name, 2 * width, rows_of({width, 2 * width})}};
}

namespace {

std::vector<LinearPart> gate_up_parts(const Weights& weights, const std::string& name, int width) {
  check_divides(weights.shard(), "intermediate_size", width);
  const std::string both = name + ".gate_up_proj";
  if (weights.has(both + ".weight")) return gate_up_halves(weights, both, width);
  return {{name + ".gate_proj", width}, {name + ".up_proj", width}};
}

}  // namespace

GatedMlp::GatedMlp(Weights& weights, const std::string& name, int hidden_size,
                   int intermediate_size, Activation activation, bool bias, LinearSplit sum)
    : gate_up_(weights, gate_up_parts(weights, name, intermediate_size), hidden_size, bias,
               LinearUse::inner, LinearSplit::rows),
      down_(weights, {{name + ".down_proj", hidden_size}}, intermediate_size, bias,
            LinearUse::residual, sum),
      activation_(activation) {}

void GatedMlp::operator()(const LayerOutput& out, const LayerInput& x,
                          const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.tokens(), width = gate_up_.rows() / 2;
  const TensorView inner = context.workspace.take(x.dtype(), {tokens, width});
  if (!gate_up_.gated(inner, x, activation_, context)) {
    const TensorView gate_up = context.workspace.take(x.dtype(), {tokens, 2 * width});
    gate_up_(gate_up, x, context);
    context.ops.gated_activation(inner, gate_up, activation_, context.stream);
  }
  down_.leave(out, inner, context);
}

Mlp::Mlp(Weights& weights, const std::string& name, int hidden_size, int intermediate_size,
         Activation activation, bool bias, LinearSplit sum)
    : up_(weights, {{name + ".up_proj", intermediate_size}}, hidden_size, bias, LinearUse::inner,
          LinearSplit::rows),
      down_(weights, {{name + ".down_proj", hidden_size}}, intermediate_size, bias,
            LinearUse::residual, sum),
      activation_(activation) {}

void Mlp::operator()(const LayerOutput& out, const LayerInput& x,
                     const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const TensorView inner = context.workspace.take(x.dtype(), {x.tokens(), up_.rows()});
  up_(inner, x, context);
  context.ops.activation(inner, inner, activation_, context.stream);
  down_.leave(out, inner, context);
}

}  // namespace quire
