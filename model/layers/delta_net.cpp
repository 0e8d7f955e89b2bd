#include "model/layers/delta_net.h"

#include <algorithm>

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

// Ranks that have the same keys.
int copies_of_keys(const Shard& shard, const DeltaNetConfig& c) {
  return std::max(1, shard.size / c.num_key_heads);
}

// With the heads that the rank has.
DeltaNetConfig own_heads(const Shard& shard, const std::string& name, DeltaNetConfig c) {
  check_heads(shard, name, c.num_value_heads, c.num_key_heads, {.many = "value heads"});
  c.num_value_heads /= shard.size;
  c.num_key_heads = std::max(1, c.num_key_heads / shard.size);
  return c;
}

// Rows `begin` to `end` of what is published as one matrix.
std::vector<std::int64_t> some(const std::vector<std::int64_t>& order, std::int64_t begin,
                               std::int64_t end) {
  return {order.begin() + begin, order.begin() + end};
}

// The same matrices as whole_parts(), but each of q, k, v, z, b and a by itself, to be shared.
std::vector<LinearPart> shared_parts(const std::vector<LinearPart>& whole,
                                     const std::vector<std::int64_t>& sizes, int copies) {
  std::vector<LinearPart> parts;
  auto size = sizes.begin();
  for (const LinearPart& part : whole) {
    const std::vector<std::int64_t> order = part.pick.empty() ? rows_of({0, part.rows}) : part.pick;
    for (std::int64_t at = 0; at < part.rows; at += *size++) {
      const bool keys = parts.size() < 2;
      parts.push_back({part.name, part.rows, some(order, at, at + *size), keys ? copies : 1});
    }
  }
  return parts;
}

std::vector<LinearPart> whole_parts(const DeltaNetConfig& c, const std::string& name) {
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

std::vector<LinearPart> input_parts(const Shard& shard, const DeltaNetConfig& c,
                                    const std::string& name) {
  const std::int64_t keys = std::int64_t{c.num_key_heads} * c.key_head_dim;
  const std::int64_t values = std::int64_t{c.num_value_heads} * c.value_head_dim;
  const std::int64_t heads = c.num_value_heads;
  const std::vector<LinearPart> whole = whole_parts(c, name);
  if (shard.whole()) return whole;
  return shared_parts(whole, {keys, keys, values, values, heads, heads}, copies_of_keys(shard, c));
}

// Of q, k and v, one after the other.
std::vector<std::int64_t> own_channels(const Shard& shard, const DeltaNetConfig& c) {
  const std::int64_t keys = std::int64_t{c.num_key_heads} * c.key_head_dim;
  const std::int64_t values = std::int64_t{c.num_value_heads} * c.value_head_dim;
  std::vector<std::int64_t> own;
  if (shard.whole()) return own;
  const Range key = share_of(shard, keys, copies_of_keys(shard, c)),
              value = share_of(shard, values);
  for (const Range& range : {key, Range{keys + key.begin, keys + key.end},
                             Range{2 * keys + value.begin, 2 * keys + value.end}}) {
    for (std::int64_t i = range.begin; i < range.end; ++i) own.push_back(i);
  }
  return own;
}

}  // namespace

DeltaNet::DeltaNet(Weights& weights, const ModelConfig& config, const std::string& name)
    : name_(name),
      config_(own_heads(weights.shard(), name, config.delta_net)),
      state_dtype_(config.recurrent_state_dtype),
      input_(weights, input_parts(weights.shard(), config.delta_net, name), config.hidden_size,
             false, LinearUse::inner, LinearSplit::rows) {
  const DeltaNetConfig& all = config.delta_net;
  const Shard& shard = weights.shard();
  const std::int64_t values = std::int64_t{all.num_value_heads} * all.value_head_dim;
  const std::int64_t channels = 2 * std::int64_t{all.num_key_heads} * all.key_head_dim + values;
  conv_ = CausalConv(weights, name + ".conv1d", channels, all.conv_kernel, false,
                     own_channels(shard, all));
  const std::vector<std::int64_t> heads = own_of(shard, all.num_value_heads);
  a_log_ = load_picked(weights, name + ".A_log", all.num_value_heads, heads, DType::f32);
  dt_bias_ = load_picked(weights, name + ".dt_bias", all.num_value_heads, heads, DType::f32);
  norm_ = RmsNorm(weights, name + ".norm", config_.value_head_dim, config.rms_norm_eps);
  output_ = Linear(weights, {{name + ".out_proj", config.hidden_size}}, values, false,
                   LinearUse::residual, LinearSplit::columns);
}

std::vector<std::int64_t> DeltaNet::state_shape() const {
  return {config_.num_value_heads, config_.key_head_dim, config_.value_head_dim};
}

LayerKvSpec DeltaNet::cache_spec(const KvSpecOptions& options) const {
  LayerKvSpec layer{cache_name(name_), state_spec(options, conv_, state_shape(), state_dtype_)};
  layer.spec.state_form = StateForm::delta_net;
  return layer;
}

void DeltaNet::bind(const LayerCache& cache) {
  conv_.bind(cache, name_);
  check_state(cache, name_, 1, state_shape());
  delta_state_ = state_view(cache, 1);
  group_ = cache.group;
}

void DeltaNet::operator()(const LayerOutput& out, const LayerInput& x,
                          const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.tokens(), channels = conv_.channels();
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
  output_.leave(out, normed, context);
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
  args.max_query_len = context.max_query_len;
  context.ops.gated_delta_rule(args, context.stream);
}

}  // namespace quire
