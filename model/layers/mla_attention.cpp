#include "model/layers/mla_attention.h"

#include <cmath>
#include <numeric>

#include "model/layers/cache_scale.h"
#include "model/layers/layer_cache.h"

namespace quire {

namespace {

// yarn's temperature also multiplies the logits, once for queries and once for keys.
double attention_scale(const ModelConfig& config) {
  const MlaConfig& mla = config.mla;
  const double plain = 1.0 / std::sqrt(mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  if (config.rope.kind == RopeKind::standard || config.rope.mscale_all_dim == 0) return plain;
  const double mscale = yarn_mscale(config.rope.factor, config.rope.mscale_all_dim);
  return plain * mscale * mscale;
}

int own_heads(const Shard& shard, const std::string& name, int heads) {
  check_divides(shard, "the number of heads of " + name, heads);
  return heads / shard.size;
}

}  // namespace

MlaAttention::MlaAttention(Weights& weights, const ModelConfig& config, const std::string& name,
                           const Rope& rope)
    : name_(name),
      config_(config.mla),
      num_heads_(own_heads(weights.shard(), name, config.num_heads)),
      scale_(static_cast<float>(attention_scale(config))),
      rope_(rope),
      published_scale_(load_cache_scale(weights, name)) {
  const MlaConfig& c = config_;
  const std::int64_t heads = config.num_heads, hidden = config.hidden_size, latent = c.kv_lora_rank;
  const std::int64_t nope = c.qk_nope_head_dim, value = c.v_head_dim;
  const std::int64_t queries = heads * (nope + c.qk_rope_head_dim);
  if (c.q_lora_rank > 0) {
    q_down_ = Linear(weights, {{name + ".q_a_proj", c.q_lora_rank}}, hidden, config.attention_bias);
    q_norm_ = RmsNorm(weights, name + ".q_a_layernorm", c.q_lora_rank, config.rms_norm_eps);
    q_ = Linear(weights, {{name + ".q_b_proj", queries}}, c.q_lora_rank, false, LinearUse::inner,
                LinearSplit::rows);
  } else {
    q_ = Linear(weights, {{name + ".q_proj", queries}}, hidden, false, LinearUse::inner,
                LinearSplit::rows);
  }
  kv_down_ =
      Linear(weights, {{name + ".kv_a_proj_with_mqa", row()}}, hidden, config.attention_bias);
  kv_norm_ = RmsNorm(weights, name + ".kv_a_layernorm", latent, config.rms_norm_eps);

  // kv_b_proj is, head by head, the rows of a key and those of a value.
  Source up{.name = name + ".kv_b_proj.weight",
            .shape = {heads * (nope + value), latent},
            .batch = heads,
            .matrices = share_of(weights.shard(), heads)};
  Source keys = up, values = up;
  keys.transposed = true;
  keys.depth = {0, nope};
  values.pick.resize(static_cast<std::size_t>(value));
  std::iota(values.pick.begin(), values.pick.end(), nope);
  if (weights.fp8().has(up.name)) {
    weights.note("kv_b_proj is kept as " + std::string(name_of(weights.dtype())) +
                 ": it is absorbed into other products");
  }
  key_up_ = weights.load({keys}, {num_heads_, latent, nope}, weights.dtype());
  value_up_ = weights.load({values}, {num_heads_, value, latent}, weights.dtype());
  output_ = Linear(weights, {{name + ".o_proj", hidden}}, heads * value, config.attention_bias,
                   LinearUse::residual, LinearSplit::columns);
}

LayerKvSpec MlaAttention::cache_spec(const KvSpecOptions& options) const {
  KvSpec spec = token_spec(options);
  spec.kind = KvKind::mla;
  spec.num_kv_heads = 1;  // the same for all heads
  spec.head_size = row();
  LayerKvSpec layer{cache_name(name_) + ".attn", spec};
  if (published_scale_ && spec.dtype == DType::fp8_e4m3) {
    layer.key_scale = published_scale_->k;
    layer.value_scale = published_scale_->k;
  }
  return layer;
}

void MlaAttention::bind(const LayerCache& cache) {
  const auto element = static_cast<std::int64_t>(size_of(cache.spec.dtype));
  check_pages(cache, name_, static_cast<std::size_t>(cache.kernel_block_size * row() * element));
  const std::int64_t ratio = cache.block_size / cache.kernel_block_size;
  const std::int64_t stride = static_cast<std::int64_t>(cache.page_bytes) / ratio / element;
  cache_ = TensorView(cache.base, cache.spec.dtype,
                      {cache.num_blocks * ratio, cache.kernel_block_size, row()})
               .with_strides({stride, row(), 1});
  const bool scaled = cache.spec.dtype == DType::fp8_e4m3 && published_scale_;
  cache_scale_ = scaled ? published_scale_->k : 1.f;
  group_ = cache.group;
}

bool MlaAttention::lacks_scale() const {
  return cache_.dtype() == DType::fp8_e4m3 && !published_scale_;
}

void MlaAttention::operator()(const LayerOutput& out, const LayerInput& x,
                              const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.tokens(), latent = config_.kv_lora_rank;
  const std::int64_t value = config_.v_head_dim;
  Workspace& workspace = context.workspace;
  const TensorView kv = workspace.take(x.dtype(), {tokens, row()});
  const TensorView q = workspace.take(x.dtype(), {tokens, num_heads_, row()});
  const TensorView attended = workspace.take(x.dtype(), {tokens, num_heads_, latent});
  const TensorView values = workspace.take(x.dtype(), {tokens, num_heads_, value});

  kv_down_(kv, x, context);
  kv_norm_(kv.narrow(1, 0, latent), kv.narrow(1, 0, latent), context);
  rope_(kv.narrow(1, latent, row()).split_last(config_.qk_rope_head_dim), context);
  const std::int64_t blocks = cache_.extent(0), size = cache_.extent(1);
  const TensorView one_head = TensorView(cache_.data(), cache_.dtype(), {blocks, size, 1, row()})
                                  .with_strides({cache_.stride(0), row(), row(), 1});
  context.ops.kv_write(one_head, {}, kv.split_last(row()), {}, context.groups[group_].slots,
                       {.k = cache_scale_}, context.stream);

  project_queries(q, x, context);
  attend(attended, q, context);
  context.ops.head_linear(values, attended, value_up_, context.stream);
  output_.leave(out, values.reshape({tokens, num_heads_ * value}), context);
}

void MlaAttention::project_queries(TensorView absorbed, const LayerInput& x,
                                   const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.tokens(), latent = config_.kv_lora_rank;
  const std::int64_t nope = config_.qk_nope_head_dim, dim = nope + config_.qk_rope_head_dim;
  const TensorView flat = context.workspace.take(x.dtype(), {tokens, num_heads_ * dim});
  if (config_.q_lora_rank > 0) {
    const TensorView low = context.workspace.take(x.dtype(), {tokens, config_.q_lora_rank});
    q_down_(low, x, context);
    q_norm_(low, low, context);
    q_(flat, low, context);
  } else {
    q_(flat, x, context);
  }
  const TensorView q = flat.split_last(dim);
  context.ops.head_linear(absorbed.narrow(2, 0, latent), q.narrow(2, 0, nope), key_up_,
                          context.stream);
  const TensorView rotated = absorbed.narrow(2, latent, row());
  context.ops.copy(rotated, q.narrow(2, nope, dim), context.stream);
  rope_(rotated, context);
}

void MlaAttention::attend(TensorView out, TensorView q, const ForwardContext& context) const {
  MlaArgs args;
  args.out = out;
  args.q = q;
  args.cache = cache_;
  args.block_table = context.groups[group_].block_table;
  args.query_start = context.query_start;
  args.seq_lens = context.seq_lens;
  args.cache_scale = cache_scale_;
  args.scale = scale_;
  args.max_query_len = context.max_query_len;
  args.max_seq_len = context.max_seq_len;
  context.ops.mla_attention(args, context.stream);
}

}  // namespace quire
