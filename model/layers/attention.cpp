#include "model/layers/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/layers/cache_scale.h"
#include "model/layers/layer_cache.h"
#include "model/layers/rank_norm.h"

namespace quire {

namespace {

// Rows of q_proj where a query and its gate take turns, head by head: `half` 0 the queries, 1 the
// gates.
std::vector<std::int64_t> every_other_head(int heads, int head_dim, int half) {
  std::vector<std::int64_t> rows;
  for (int h = 0; h < heads; ++h) {
    for (int d = 0; d < head_dim; ++d) rows.push_back((2 * h + half) * head_dim + d);
  }
  return rows;
}

// Ranks that have the same keys and values.
int copies_of_keys(const Shard& shard, const AttentionOptions& o) {
  return std::max(1, shard.size / o.num_kv_heads);
}

std::vector<LinearPart> qkv_parts(const Weights& weights, const AttentionOptions& o) {
  const std::int64_t q = std::int64_t{o.num_heads} * o.head_dim;
  const std::int64_t kv = std::int64_t{o.num_kv_heads} * o.head_dim;
  const std::string all = o.name + ".qkv_proj";
  const int copies = copies_of_keys(weights.shard(), o);
  if (weights.has(all + ".weight")) {
    if (weights.shard().whole()) return {{all, q + 2 * kv}};
    return {{all, q + 2 * kv, rows_of({0, q})},
            {all, q + 2 * kv, rows_of({q, q + kv}), copies},
            {all, q + 2 * kv, rows_of({q + kv, q + 2 * kv}), copies}};
  }
  const LinearPart k{o.name + ".k_proj", kv, {}, copies}, v{o.name + ".v_proj", kv, {}, copies};
  if (!o.gated) return {{o.name + ".q_proj", q}, k, v};
  return {{o.name + ".q_proj", 2 * q, every_other_head(o.num_heads, o.head_dim, 0)},
          {o.name + ".q_proj", 2 * q, every_other_head(o.num_heads, o.head_dim, 1)},
          k,
          v};
}

// With the heads that the rank has.
AttentionOptions own_heads(const Shard& shard, AttentionOptions o) {
  check_heads(shard, o.name, o.num_heads, o.num_kv_heads);
  o.num_heads /= shard.size;
  o.num_kv_heads = std::max(1, o.num_kv_heads / shard.size);
  return o;
}

}  // namespace

AttentionOptions attention_options(const ModelConfig& config, int layer, std::string name,
                                   const Rope& rope) {
  AttentionOptions o;
  o.name = std::move(name);
  o.hidden_size = config.hidden_size;
  o.num_heads = config.num_heads;
  o.num_kv_heads = config.num_kv_heads;
  o.head_dim = config.head_dim;
  o.scale = config.attention_scale > 0 ? config.attention_scale : 1.0 / std::sqrt(config.head_dim);
  o.soft_cap = config.attention_soft_cap;
  o.window = config.layer_types[layer] == LayerType::sliding_attention ? config.sliding_window : 0;
  o.qkv_bias = config.attention_bias;
  o.output_bias = config.attention_bias && config.attention_output_bias;
  o.qk_norm = config.qk_norm ? QkNorm::per_head : QkNorm::none;
  o.norm_eps = config.rms_norm_eps;
  o.rope = rope;
  return o;
}

Attention::Attention(Weights& weights, const AttentionOptions& o)
    : options_(own_heads(weights.shard(), o)),
      shard_(weights.shard()),
      qkv_(weights, qkv_parts(weights, o), o.input_size > 0 ? o.input_size : o.hidden_size,
           o.qkv_bias, LinearUse::inner, LinearSplit::rows),
      output_(weights, {{o.name + ".o_proj", o.hidden_size}},
              std::int64_t{o.num_heads} * o.head_dim, o.output_bias, LinearUse::residual,
              LinearSplit::columns),
      published_scale_(load_cache_scale(weights, o.name)),
      shape_{.kv_heads = options_.num_kv_heads,
             .head_dim = options_.head_dim,
             .max_len = weights.served().max_len,
             .dtype = weights.dtype(),
             .cache = weights.served().cache_dtype} {
  if (o.qk_norm != QkNorm::none) {
    const bool whole = o.qk_norm == QkNorm::whole;
    const int queries = o.head_dim * (whole ? o.num_heads : 1);
    const int keys = o.head_dim * (whole ? o.num_kv_heads : 1);
    const auto order =
        whole ? side_by_side(shard_, keys, copies_of_keys(shard_, o)) : std::vector<std::int64_t>();
    q_norm_ = RmsNorm(weights, o.name + ".q_norm", queries, o.norm_eps, o.norm_offset);
    k_norm_ = RmsNorm(weights, o.name + ".k_norm", keys, o.norm_eps, o.norm_offset, order);
  }
  if (o.sinks)
    sinks_ = load_picked(weights, o.name + ".sinks", o.num_heads,
                         own_of(weights.shard(), o.num_heads), DType::f32);
}

LayerKvSpec Attention::cache_spec(const KvSpecOptions& options) const {
  KvSpec spec = token_spec(options);
  spec.kind = options_.window > 0 ? KvKind::sliding_window : KvKind::full;
  spec.num_kv_heads = options_.num_kv_heads;
  spec.head_size = options_.head_dim;
  spec.sliding_window = options_.window;
  LayerKvSpec layer{cache_name(options_.name) + ".attn", spec};
  if (published_scale_ && spec.dtype == DType::fp8_e4m3) {
    layer.key_scale = published_scale_->k;
    layer.value_scale = published_scale_->v;
  }
  return layer;
}

void Attention::bind(const LayerCache& cache) {
  const std::int64_t size = cache.kernel_block_size, heads = options_.num_kv_heads;
  const std::int64_t dim = options_.head_dim, plane = size * heads * dim;
  const auto element = static_cast<std::int64_t>(size_of(cache.spec.dtype));
  check_pages(cache, options_.name, static_cast<std::size_t>(2 * plane * element));
  const std::int64_t ratio = cache.block_size / cache.kernel_block_size;
  const std::int64_t stride = static_cast<std::int64_t>(cache.page_bytes) / ratio / element;
  const TensorView pages(cache.base, cache.spec.dtype,
                         {cache.num_blocks * ratio, size, heads, dim});
  k_cache_ = pages.with_strides({stride, heads * dim, dim, 1});
  v_cache_ = TensorView(static_cast<std::byte*>(cache.base) + plane * element, cache.spec.dtype,
                        {cache.num_blocks * ratio, size, heads, dim})
                 .with_strides({stride, heads * dim, dim, 1});
  cache_scale_ =
      cache.spec.dtype == DType::fp8_e4m3 ? published_scale_.value_or(CacheScale{}) : CacheScale{};
  group_ = cache.group;
}

bool Attention::lacks_scale() const {
  return k_cache_.dtype() == DType::fp8_e4m3 && !published_scale_;
}

void Attention::attend_last(const LayerOutput& out, const LayerInput& x, const LastTokens& last,
                            const ForwardContext& context) const {
  const AttentionOptions& o = options_;
  const std::int64_t tokens = x.tokens(), queries = std::int64_t{o.num_heads} * o.head_dim;
  const std::int64_t keys = std::int64_t{o.num_kv_heads} * o.head_dim;
  const Workspace::Scope scope(context.workspace);
  const TensorView qkv = context.workspace.take(x.dtype(), {tokens, qkv_.rows()});
  const std::int64_t asked = last.empty() ? tokens : last.rows.extent(0);
  const TensorView attended = context.workspace.take(x.dtype(), {asked, queries});

  qkv_(qkv, x, context);
  std::int64_t at = 0;
  const auto next = [&](std::int64_t width) {
    at += width;
    return qkv.narrow(1, at - width, at);
  };
  const TensorView all_queries = next(queries);
  TensorView q = all_queries;
  TensorView gate = o.gated ? next(queries) : TensorView();
  const TensorView k = next(keys);
  const TensorView v = next(keys);

  if (o.qk_norm == QkNorm::whole) norm_whole(q, k, context);
  q = q.split_last(o.head_dim);
  const TensorView out_heads = attended.split_last(o.head_dim);
  const HeadArgs heads = heads_of(q, k.split_last(o.head_dim), v.split_last(o.head_dim), context);
  if (last.empty()) {
    context.ops.attend_new(heads, attention_of(out_heads, q, last, context), context.stream);
  } else {
    context.ops.prepare_heads(heads, context.stream);
    const auto pick = [&](TensorView all) {
      const TensorView few = context.workspace.take(x.dtype(), {asked, queries});
      context.ops.gather_rows(few, all, last.rows, context.stream);
      return few;
    };
    q = pick(all_queries).split_last(o.head_dim);
    if (o.gated) gate = pick(gate);
    context.ops.paged_attention(attention_of(out_heads, q, last, context), context.stream);
  }
  if (o.gated) context.ops.sigmoid_gate(attended, gate, context.stream);
  output_.leave(out, attended, context);
}

HeadArgs Attention::heads_of(TensorView q, TensorView k, TensorView v,
                             const ForwardContext& context) const {
  HeadArgs args;
  args.q = q;
  args.k = k;
  args.v = v;
  if (options_.qk_norm == QkNorm::per_head) {
    args.q_norm = q_norm_.weight();
    args.k_norm = k_norm_.weight();
    args.norm_eps = q_norm_.eps();
    args.norm_offset = q_norm_.offset();
  }
  args.positions = context.positions;
  args.cos_sin = options_.rope.table();
  args.style = options_.rope.style();
  args.k_cache = k_cache_;
  args.v_cache = v_cache_;
  args.slots = context.groups[group_].slots;
  args.cache_scale = cache_scale_;
  return args;
}

void Attention::norm_whole(TensorView q, TensorView k, const ForwardContext& context) const {
  if (shard_.whole()) {
    q_norm_(q, q, context);
    k_norm_(k, k, context);
    return;
  }
  norm_over_ranks(q_norm_, q, q, shard_, shard_.size, context);
  // Keys that several ranks have count as often for each head: their mean square is the same.
  norm_over_ranks(k_norm_, k, k, shard_, shard_.size, context);
}

AttentionArgs Attention::attention_of(TensorView out, TensorView q, const LastTokens& last,
                                      const ForwardContext& context) const {
  AttentionArgs args;
  args.out = out;
  args.q = q;
  args.k_cache = k_cache_;
  args.v_cache = v_cache_;
  args.block_table = context.groups[group_].block_table;
  args.query_start = last.empty() ? context.query_start : last.starts;
  args.seq_lens = last.seq_lens.empty() ? context.seq_lens : last.seq_lens;
  args.sinks = sinks_;
  if (last.empty()) {
    args.shared = context.groups[group_].shared;
    args.host_rows = context.host_rows;
  }
  args.cache_scale = cache_scale_;
  args.scale = static_cast<float>(options_.scale);
  args.soft_cap = static_cast<float>(options_.soft_cap);
  args.window = options_.window;
  args.max_query_len = last.empty() ? context.max_query_len : 1;
  args.max_seq_len = context.max_seq_len;
  const std::size_t bytes = context.ops.traits().attention_workspace_bytes(shape_);
  if (bytes > 0)
    args.workspace = context.workspace.take(DType::u8, {static_cast<std::int64_t>(bytes)});
  return args;
}

}  // namespace quire
