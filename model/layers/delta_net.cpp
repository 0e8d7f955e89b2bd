#include "model/layers/delta_net.h"

#include "model/layers/layer_cache.h"

namespace quire {

namespace {

// Qwen3-Next interleaves by key head: its q, its k, the v of its value heads, their z (or b and a).
// `sizes` are the rows of each piece within a key head's block; piece after piece comes out.
std::vector<std::int64_t> piece_by_piece(int key_heads, std::initializer_list<std::int64_t> sizes) {
  std::int64_t block = 0;
  for (const std::int64_t size : sizes) block += size;
  std::vector<std::int64_t> rows;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    for (int head = 0; head < key_heads; ++head) {
      for (std::int64_t i = 0; i < size; ++i) rows.push_back(head * block + begin + i);
    }
    begin += size;
  }
  return rows;
}

std::vector<LinearPart> input_parts(const ModelConfig& config, const std::string& name) {
  const DeltaNetConfig& c = config.delta_net;
  const std::int64_t keys = std::int64_t{c.num_key_heads} * c.key_head_dim;
  const std::int64_t values = std::int64_t{c.num_value_heads} * c.value_head_dim;
  if (!c.fused_inputs) {
    return {{name + ".in_proj_qkv", 2 * keys + values},
            {name + ".in_proj_z", values},
            {name + ".in_proj_b", c.num_value_heads},
            {name + ".in_proj_a", c.num_value_heads}};
  }
  const std::int64_t share = c.num_value_heads / c.num_key_heads;
  const std::int64_t width = share * c.value_head_dim;
  return {{name + ".in_proj_qkvz", 2 * keys + 2 * values,
           piece_by_piece(c.num_key_heads, {c.key_head_dim, c.key_head_dim, width, width})},
          {name + ".in_proj_ba", 2 * c.num_value_heads,
           piece_by_piece(c.num_key_heads, {share, share})}};
}

}  // namespace

DeltaNet::DeltaNet(Weights& weights, const ModelConfig& config, const std::string& name)
    : name_(name),
      config_(config.delta_net),
      state_dtype_(config.recurrent_state_dtype),
      input_(weights, input_parts(config, name), config.hidden_size, false) {
  refuse_shard(weights.shard(), name + ", a gated delta net,");
  const std::int64_t values = std::int64_t{config_.num_value_heads} * config_.value_head_dim;
  const std::int64_t channels =
      2 * std::int64_t{config_.num_key_heads} * config_.key_head_dim + values;
  conv_ = CausalConv(weights, name + ".conv1d", channels, config_.conv_kernel, false);
  a_log_ = weights.load(name + ".A_log", {config_.num_value_heads}, DType::f32);
  dt_bias_ = weights.load(name + ".dt_bias", {config_.num_value_heads}, DType::f32);
  norm_ = RmsNorm(weights, name + ".norm", config_.value_head_dim, config.rms_norm_eps);
  output_ = Linear(weights, {{name + ".out_proj", config.hidden_size}}, values, false,
                   LinearUse::residual);
}

std::vector<std::int64_t> DeltaNet::state_shape() const {
  return {config_.num_value_heads, config_.key_head_dim, config_.value_head_dim};
}

LayerKvSpec DeltaNet::cache_spec(const KvSpecOptions& options) const {
  return {cache_name(name_),
          state_spec(options, conv_.width(), conv_.channels(), state_shape(), state_dtype_)};
}

void DeltaNet::bind(const LayerCache& cache) {
  conv_.bind(cache, name_);
  check_state(cache, name_, 1, state_shape());
  delta_state_ = state_view(cache, 1);
  group_ = cache.group;
}

void DeltaNet::operator()(TensorView out, TensorView x, const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.extent(0), channels = conv_.channels();
  const std::int64_t heads = config_.num_value_heads, dim = config_.value_head_dim;
  const TensorView all = context.workspace.take(x.dtype(), {tokens, input_.rows()});
  const TensorView mixed = context.workspace.take(DType::f32, {tokens, heads, dim});
  const TensorView normed = context.workspace.take(x.dtype(), {tokens, heads * dim});
  input_(all, x, context);
  std::int64_t at = 0;
  const auto next = [&](std::int64_t width) {
    at += width;
    return all.narrow(1, at - width, at);
  };
  const TensorView qkv = next(channels), z = next(heads * dim), b = next(heads), a = next(heads);

  recur(mixed, conv_(qkv, context), b, a, context);
  context.ops.gated_rms_norm(normed.split_last(dim), mixed, z.split_last(dim), norm_.weight(),
                             norm_.eps(),
                             /*norm_first=*/true, context.stream);
  output_(out, normed, context);
}

void DeltaNet::recur(TensorView out, TensorView qkv, TensorView b, TensorView a,
                     const ForwardContext& context) const {
  const std::int64_t keys = std::int64_t{config_.num_key_heads} * config_.key_head_dim;
  DeltaRuleArgs args;
  args.out = out;
  args.q = qkv.narrow(1, 0, keys).split_last(config_.key_head_dim);
  args.k = qkv.narrow(1, keys, 2 * keys).split_last(config_.key_head_dim);
  args.v = qkv.narrow(1, 2 * keys, qkv.extent(1)).split_last(config_.value_head_dim);
  args.a = a;
  args.b = b;
  args.a_log = a_log_;
  args.dt_bias = dt_bias_;
  args.state = delta_state_;
  args.query_start = context.query_start;
  args.state_read = context.groups[group_].state_read;
  args.state_write = context.groups[group_].state_write;
  args.token_states = context.groups[group_].token_states;
  context.ops.gated_delta_rule(args, context.stream);
}

}  // namespace quire
