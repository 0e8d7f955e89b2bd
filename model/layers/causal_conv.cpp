#include "model/layers/causal_conv.h"

#include "model/layers/layer_cache.h"

namespace quire {

CausalConv::CausalConv(Weights& weights, const std::string& name, std::int64_t channels, int width,
                       bool bias, const std::vector<std::int64_t>& pick)
    : weight_(
          weights.load({{.name = name + ".weight", .shape = {channels, 1, width}, .pick = pick}},
                       {pick.empty() ? channels : static_cast<std::int64_t>(pick.size()), width},
                       weights.dtype())),
      own_(ranges_of(pick)) {
  if (bias) bias_ = load_picked(weights, name + ".bias", channels, pick, weights.dtype());
}

void CausalConv::bind(const LayerCache& cache, const std::string& layer) {
  check_state(cache, layer, 0, {width() - 1, channels()});
  // Rows beyond these are for speculated tokens.
  state_ = state_view(cache, 0).narrow(1, 0, width() - 1);
  group_ = cache.group;
}

TensorView CausalConv::operator()(TensorView x, const ForwardContext& context) const {
  ConvArgs args;
  args.out = context.workspace.take(x.dtype(), {x.extent(0), x.extent(1)});
  args.x = x;
  args.weight = weight_;
  args.bias = bias_;
  args.state = state_;
  args.query_start = context.query_start;
  args.state_read = context.groups[group_].state_read;
  args.state_write = context.groups[group_].state_write;
  args.token_states = context.groups[group_].token_states;
  context.ops.causal_conv(args, context.stream);
  return args.out;
}

}  // namespace quire
