#include "model/layers/mamba2.h"

#include <algorithm>
#include <limits>

#include "model/layers/layer_cache.h"
#include "model/layers/rank_norm.h"

namespace quire {

namespace {

// With the heads and groups that the rank has.
Mamba2Config own_heads(const Shard& shard, const std::string& name, Mamba2Config c) {
  check_heads(shard, name, c.num_heads, c.num_groups, {.many = "heads", .few = "groups"});
  c.num_heads /= shard.size;
  c.num_groups = std::max(1, c.num_groups / shard.size);
  return c;
}

// Where the parts of the projection begin that the convolution reads, and their sizes.
struct Part {
  std::int64_t begin, size;
  int copies = 1;  // ranks that have the same
};

std::vector<Part> parts_of(const Shard& shard, const Mamba2Config& c) {
  const std::int64_t inner = std::int64_t{c.num_heads} * c.head_dim;
  const std::int64_t states = std::int64_t{c.num_groups} * c.state_size;
  const int copies = std::max(1, shard.size / c.num_groups);
  return {{0, inner}, {inner, states, copies}, {inner + states, states, copies}};
}

std::vector<LinearPart> input_parts(const Shard& shard, const Mamba2Config& c,
                                    const std::string& name) {
  const std::vector<Part> mixed = parts_of(shard, c);
  const std::int64_t inner = mixed[0].size, heads = c.num_heads;
  const std::int64_t rows = 2 * inner + 2 * mixed[1].size + heads;
  if (shard.whole()) return {{name, rows}};
  std::vector<LinearPart> parts{{name, rows, rows_of({0, inner})}};
  for (const Part& part : mixed)
    parts.push_back(
        {name, rows, rows_of({inner + part.begin, inner + part.begin + part.size}), part.copies});
  parts.push_back({name, rows, rows_of({rows - heads, rows})});
  return parts;
}

std::vector<std::int64_t> own_channels(const Shard& shard, const Mamba2Config& c) {
  std::vector<std::int64_t> own;
  if (shard.whole()) return own;
  for (const Part& part : parts_of(shard, c)) {
    const Range share = share_of(shard, part.size, part.copies);
    for (std::int64_t i = share.begin; i < share.end; ++i) own.push_back(part.begin + i);
  }
  return own;
}

// Of the norm's weight: the rank's own groups, or all of the one that it has a part of.
std::vector<std::int64_t> own_norm(const Shard& shard, std::int64_t width, int ranks) {
  return own_of({.rank = shard.rank / ranks, .size = shard.size / ranks}, width);
}

int ranks_of_norm(const Shard& shard, const std::string& name, int groups) {
  if (groups % shard.size == 0) return 1;
  if (shard.size % groups == 0) return shard.size / groups;
  refuse_shares(shard, name + " norms " + std::to_string(groups) + " groups of heads");
}

}  // namespace

Mamba2::Mamba2(Weights& weights, const ModelConfig& config, const std::string& name,
               int norm_groups)
    : name_(name),
      shard_(weights.shard()),
      config_(own_heads(shard_, name, config.mamba2)),
      state_dtype_(config.recurrent_state_dtype),
      norm_groups_(std::max(1, norm_groups / shard_.size)),
      norm_ranks_(ranks_of_norm(shard_, name, norm_groups)) {
  const Mamba2Config& all = config.mamba2;
  const std::int64_t heads = all.num_heads, width = heads * all.head_dim;
  const std::int64_t channels = width + 2 * std::int64_t{all.num_groups} * all.state_size;
  input_ = Linear(weights, input_parts(shard_, all, name + ".in_proj"), config.hidden_size,
                  all.proj_bias, LinearUse::inner, LinearSplit::rows);
  conv_ = CausalConv(weights, name + ".conv1d", channels, all.conv_kernel, all.conv_bias,
                     own_channels(shard_, all));
  const std::vector<std::int64_t> own = own_of(shard_, heads);
  a_log_ = load_picked(weights, name + ".A_log", heads, own, DType::f32);
  dt_bias_ = load_picked(weights, name + ".dt_bias", heads, own, DType::f32);
  d_skip_ = load_picked(weights, name + ".D", heads, own, DType::f32);
  norm_ = RmsNorm(weights, name + ".norm", width, config.rms_norm_eps, 0.f,
                  own_norm(shard_, width, norm_ranks_));
  output_ = Linear(weights, {{name + ".out_proj", config.hidden_size}}, width, all.proj_bias,
                   LinearUse::residual, LinearSplit::columns);
}

std::vector<std::int64_t> Mamba2::state_shape() const {
  return {config_.num_heads, config_.head_dim, config_.state_size};
}

LayerKvSpec Mamba2::cache_spec(const KvSpecOptions& options) const {
  // Granite calls it "mamba", vLLM like every other model's.
  const std::string layer = cache_name(name_.substr(0, name_.rfind('.') + 1)) + "mixer";
  return {layer, state_spec(options, conv_, state_shape(), state_dtype_)};
}

void Mamba2::bind(const LayerCache& cache) {
  conv_.bind(cache, name_);
  check_state(cache, name_, 1, state_shape());
  scan_state_ = state_view(cache, 1);
  group_ = cache.group;
}

void Mamba2::operator()(const LayerOutput& out, const LayerInput& x,
                        const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.tokens(), channels = conv_.channels();
  const TensorView all = context.workspace.take(x.dtype(), {tokens, input_.rows()});
  const TensorView mixed =
      context.workspace.take(DType::f32, {tokens, config_.num_heads, config_.head_dim});
  const TensorView normed = context.workspace.take(x.dtype(), {tokens, inner()});
  input_(all, x, context);
  const TensorView z = all.narrow(1, 0, inner());
  const TensorView xbc = all.narrow(1, inner(), inner() + channels);
  const TensorView dt = all.narrow(1, inner() + channels, all.extent(1));

  scan(mixed, conv_(xbc, context), dt, context);
  gated_norm(normed, mixed, z, context);
  output_.leave(out, normed, context);
}

void Mamba2::gated_norm(TensorView out, TensorView x, TensorView z,
                        const ForwardContext& context) const {
  const std::int64_t tokens = x.extent(0), width = inner() / norm_groups_;
  if (norm_ranks_ == 1) {
    context.ops.gated_rms_norm(out.split_last(width), x.reshape({tokens, norm_groups_, width}),
                               z.split_last(width), norm_.weight().reshape({norm_groups_, width}),
                               norm_.eps(), /*norm_first=*/false, context.stream);
    return;
  }
  const Workspace::Scope scope(context.workspace);
  const TensorView both = context.workspace.take(DType::f32, {tokens, 2 * inner()});
  const TensorView gated = context.workspace.take(DType::f32, {tokens, inner()});
  context.ops.copy(both.narrow(1, 0, inner()), z, context.stream);
  context.ops.copy(both.narrow(1, inner(), 2 * inner()), x.reshape({tokens, inner()}),
                   context.stream);
  context.ops.gated_activation(gated, both, Activation::silu, context.stream);
  norm_over_ranks(norm_, out, gated, shard_, norm_ranks_, context);
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
  args.max_query_len = context.max_query_len;
  args.dt_min = static_cast<float>(config_.time_step_min);
  args.dt_max = static_cast<float>(
      std::min<double>(config_.time_step_max, std::numeric_limits<float>::max()));
  context.ops.selective_scan(args, context.stream);
}

}  // namespace quire
