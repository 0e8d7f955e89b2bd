#include "model/layers/mamba2.h"

#include <algorithm>
#include <limits>

#include "model/layers/layer_cache.h"

namespace quire {

Mamba2::Mamba2(Weights& weights, const ModelConfig& config, const std::string& name,
               int norm_groups)
    : name_(name),
      config_(config.mamba2),
      state_dtype_(config.recurrent_state_dtype),
      norm_groups_(norm_groups) {
  refuse_shard(weights.shard(), name + ", a Mamba2 mixer,");
  const std::int64_t heads = config_.num_heads;
  const std::int64_t channels = inner() + 2 * std::int64_t{config_.num_groups} * config_.state_size;
  input_ = Linear(weights, {{name + ".in_proj", inner() + channels + heads}}, config.hidden_size,
                  config_.proj_bias);
  conv_ = CausalConv(weights, name + ".conv1d", channels, config_.conv_kernel, config_.conv_bias);
  a_log_ = weights.load(name + ".A_log", {heads}, DType::f32);
  dt_bias_ = weights.load(name + ".dt_bias", {heads}, DType::f32);
  d_skip_ = weights.load(name + ".D", {heads}, DType::f32);
  norm_ = RmsNorm(weights, name + ".norm", inner(), config.rms_norm_eps);
  output_ = Linear(weights, {{name + ".out_proj", config.hidden_size}}, inner(), config_.proj_bias,
                   LinearUse::residual);
}

std::vector<std::int64_t> Mamba2::state_shape() const {
  return {config_.num_heads, config_.head_dim, config_.state_size};
}

LayerKvSpec Mamba2::cache_spec(const KvSpecOptions& options) const {
  // Granite calls it "mamba", vLLM like every other model's.
  const std::string layer = cache_name(name_.substr(0, name_.rfind('.') + 1)) + "mixer";
  return {layer, state_spec(options, conv_.width(), conv_.channels(), state_shape(), state_dtype_)};
}

void Mamba2::bind(const LayerCache& cache) {
  conv_.bind(cache, name_);
  check_state(cache, name_, 1, state_shape());
  scan_state_ = state_view(cache, 1);
  group_ = cache.group;
}

void Mamba2::operator()(TensorView out, TensorView x, const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.extent(0), channels = conv_.channels();
  const TensorView all = context.workspace.take(x.dtype(), {tokens, input_.rows()});
  const TensorView mixed =
      context.workspace.take(DType::f32, {tokens, config_.num_heads, config_.head_dim});
  const TensorView normed = context.workspace.take(x.dtype(), {tokens, inner()});
  input_(all, x, context);
  const TensorView z = all.narrow(1, 0, inner());
  const TensorView xbc = all.narrow(1, inner(), inner() + channels);
  const TensorView dt = all.narrow(1, inner() + channels, all.extent(1));

  scan(mixed, conv_(xbc, context), dt, context);
  const std::int64_t width = inner() / norm_groups_;
  context.ops.gated_rms_norm(normed.split_last(width), mixed.reshape({tokens, norm_groups_, width}),
                             z.split_last(width), norm_.weight().reshape({norm_groups_, width}),
                             norm_.eps(),
                             /*norm_first=*/false, context.stream);
  output_(out, normed, context);
}

void Mamba2::scan(TensorView out, TensorView xbc, TensorView dt,
                  const ForwardContext& context) const {
  const std::int64_t width = std::int64_t{config_.num_groups} * config_.state_size;
  ScanArgs args;
  args.out = out;
  args.x = xbc.narrow(1, 0, inner()).split_last(config_.head_dim);
  args.b = xbc.narrow(1, inner(), inner() + width).split_last(config_.state_size);
  args.c = xbc.narrow(1, inner() + width, inner() + 2 * width).split_last(config_.state_size);
  args.dt = dt;
  args.a_log = a_log_;
  args.dt_bias = dt_bias_;
  args.d_skip = d_skip_;
  args.state = scan_state_;
  args.query_start = context.query_start;
  args.state_read = context.groups[group_].state_read;
  args.state_write = context.groups[group_].state_write;
  args.token_states = context.groups[group_].token_states;
  args.dt_min = static_cast<float>(config_.time_step_min);
  args.dt_max = static_cast<float>(
      std::min<double>(config_.time_step_max, std::numeric_limits<float>::max()));
  context.ops.selective_scan(args, context.stream);
}

}  // namespace quire
