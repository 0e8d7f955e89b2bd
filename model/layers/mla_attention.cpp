#include "model/layers/mla_attention.h"

#include <algorithm>
#include <cmath>

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
                           const Rope& rope, const OpsTraits& ops, LatentForms forms)
    : name_(name),
      config_(config.mla),
      num_heads_(own_heads(weights.shard(), name, config.num_heads)),
      scale_(static_cast<float>(attention_scale(config))),
      rope_(rope),
      expansion_cost_(ops.expansion_cost()),
      published_scale_(load_cache_scale(weights, name)) {
  const MlaConfig& c = config_;
  const std::int64_t heads = config.num_heads, hidden = config.hidden_size;
  const std::int64_t queries = heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
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
  kv_norm_ = RmsNorm(weights, name + ".kv_a_layernorm", c.kv_lora_rank, config.rms_norm_eps);
  load_up(weights, ops, forms, heads);
  output_ = Linear(weights, {{name + ".o_proj", hidden}}, heads * c.v_head_dim,
                   config.attention_bias, LinearUse::residual, LinearSplit::columns);
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

// kv_b_proj is, head by head, the rows of a key and those of a value.
void MlaAttention::load_up(Weights& weights, const OpsTraits& ops, LatentForms forms,
                           std::int64_t heads) {
  const std::int64_t nope = config_.qk_nope_head_dim, value = config_.v_head_dim;
  const std::int64_t latent = config_.kv_lora_rank, rows = nope + value;
  const Range own = share_of(weights.shard(), heads);
  const std::string name = name_ + ".kv_b_proj.weight";
  if (weights.fp8().has(name)) {
    weights.note("kv_b_proj is kept as " + std::string(name_of(weights.dtype())) +
                 ": it is absorbed into other products");
  }
  Source head{.name = name, .shape = {heads * rows, latent}, .batch = heads, .matrices = own};
  Source keys = head;
  keys.transposed = true;
  keys.depth = {0, nope};
  key_up_ = weights.load({keys}, {num_heads_, latent, nope}, weights.dtype());
  if (forms == LatentForms::absorbed || ops.latent_prompt_bytes(1, shape()) == 0) {
    head.pick = rows_of({nope, rows});
    value_up_ = weights.load({head}, {num_heads_, value, latent}, weights.dtype());
    return;
  }
  Source up{.name = name, .shape = head.shape};
  up.pick = own_of(weights.shard(), heads * rows);
  up_ = weights.load({up}, {num_heads_, rows, latent}, weights.dtype());
  value_up_ = up_.narrow(1, nope, rows);
}

LatentShape MlaAttention::shape() const {
  return {.heads = num_heads_,
          .latent = config_.kv_lora_rank,
          .rope = config_.qk_rope_head_dim,
          .nope = config_.qk_nope_head_dim,
          .value = config_.v_head_dim,
          .dtype = key_up_.dtype()};
}

void MlaAttention::attend_last(const LayerOutput& out, const LayerInput& x, const LastTokens& last,
                               const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.tokens(), latent = config_.kv_lora_rank;
  const std::int64_t dim = config_.qk_nope_head_dim + config_.qk_rope_head_dim;
  const std::int64_t asked = last.empty() ? tokens : last.rows.extent(0);
  Workspace& workspace = context.workspace;
  const TensorView kv = workspace.take(x.dtype(), {tokens, row()});
  const TensorView all_queries = workspace.take(x.dtype(), {tokens, num_heads_, dim});
  const TensorView values = workspace.take(x.dtype(), {asked, num_heads_, config_.v_head_dim});

  kv_down_(kv, x, context);
  kv_norm_(kv.narrow(1, 0, latent), kv.narrow(1, 0, latent), context);
  rope_(kv.narrow(1, latent, row()).split_last(config_.qk_rope_head_dim), context);
  const std::int64_t blocks = cache_.extent(0), size = cache_.extent(1);
  const TensorView one_head = TensorView(cache_.data(), cache_.dtype(), {blocks, size, 1, row()})
                                  .with_strides({cache_.stride(0), row(), row(), 1});
  context.ops.kv_write(one_head, {}, kv.split_last(row()), {}, context.groups[group_].slots,
                       {.k = cache_scale_}, context.stream);

  project_queries(all_queries, x, context);
  TensorView q = all_queries;
  if (!last.empty()) {
    const TensorView few = workspace.take(x.dtype(), {asked, num_heads_ * dim});
    context.ops.gather_rows(few, all_queries.reshape({tokens, num_heads_ * dim}), last.rows,
                            context.stream);
    q = few.split_last(dim);
  }
  const Split requests = last.empty() ? split(tokens, context)
                                      : Split{{}, {{0, asked, 0, asked, 1, context.max_seq_len}}};
  attend_absorbed(values, q, requests.others, last, context);
  attend_expanded(values, q, requests.prompts, context);
  output_.leave(out, values.reshape({asked, num_heads_ * config_.v_head_dim}), context);
}

void MlaAttention::project_queries(TensorView q, const LayerInput& x,
                                   const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = x.tokens(), dim = q.extent(2);
  const TensorView flat = q.reshape({tokens, num_heads_ * dim});
  if (config_.q_lora_rank > 0) {
    const TensorView low = context.workspace.take(x.dtype(), {tokens, config_.q_lora_rank});
    q_down_(low, x, context);
    q_norm_(low, low, context);
    q_(flat, low, context);
  } else {
    q_(flat, x, context);
  }
  rope_(q.narrow(2, config_.qk_nope_head_dim, dim), context);
}

MlaAttention::Split MlaAttention::split(std::int64_t num_tokens,
                                        const ForwardContext& context) const {
  Split all;
  const std::int64_t requests = context.seq_lens.extent(0);
  const std::span<const std::int32_t> starts = context.host_rows.query_start;
  const std::span<const std::int32_t> lens = context.host_rows.seq_lens;
  if (up_.empty() || lens.empty()) {
    all.others.push_back({0, requests, 0, num_tokens, context.max_query_len, context.max_seq_len});
    return all;
  }
  for (std::int32_t r = 0; r < requests; ++r) {
    const std::int32_t first = starts[static_cast<std::size_t>(r)];
    const std::int32_t end = starts[static_cast<std::size_t>(r) + 1];
    const std::int32_t len = lens[static_cast<std::size_t>(r)], cached = len - (end - first);
    if (takes_less_expanded(shape(), end - first, cached, expansion_cost_)) {
      all.prompts.push_back({r, first, end - first, cached});
      continue;
    }
    if (all.others.empty() || all.others.back().end != r)
      all.others.push_back({r, r, first, first, 0, 0});
    Run& run = all.others.back();
    run.end = r + 1;
    run.end_token = end;
    run.max_query_len = std::max(run.max_query_len, end - first);
    run.max_seq_len = std::max(run.max_seq_len, len);
  }
  return all;
}

void MlaAttention::attend_absorbed(TensorView values, TensorView q, std::span<const Run> runs,
                                   const LastTokens& last, const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t tokens = q.extent(0), latent = config_.kv_lora_rank;
  const std::int64_t nope = config_.qk_nope_head_dim;
  const TensorView absorbed = context.workspace.take(q.dtype(), {tokens, num_heads_, row()});
  const TensorView attended = context.workspace.take(q.dtype(), {tokens, num_heads_, latent});
  const TensorView starts = last.empty() ? context.query_start : last.starts;
  const TensorView lens = last.seq_lens.empty() ? context.seq_lens : last.seq_lens;
  MlaArgs args;
  args.out = attended;
  args.q = absorbed;
  args.cache = cache_;
  args.cache_scale = cache_scale_;
  args.scale = scale_;
  for (const Run& run : runs) {
    const auto own = [&](TensorView all) { return all.rows(run.first_token, run.end_token); };
    context.ops.head_linear(own(absorbed).narrow(2, 0, latent), own(q).narrow(2, 0, nope), key_up_,
                            context.stream);
    context.ops.copy(own(absorbed).narrow(2, latent, row()), own(q).narrow(2, nope, q.extent(2)),
                     context.stream);
    args.max_query_len = run.max_query_len;
    args.max_seq_len = run.max_seq_len;
    args.block_table = context.groups[group_].block_table.rows(run.begin, run.end);
    args.query_start = starts.rows(run.begin, run.end + 1);
    args.seq_lens = lens.rows(run.begin, run.end);
    context.ops.mla_attention(args, context.stream);
    context.ops.head_linear(own(values), own(attended), value_up_, context.stream);
  }
}

void MlaAttention::attend_expanded(TensorView values, TensorView q,
                                   std::span<const LatentPrompt> prompts,
                                   const ForwardContext& context) const {
  if (up_.empty()) return;
  const Workspace::Scope scope(context.workspace);
  const std::size_t bytes =
      context.ops.traits().latent_prompt_bytes(static_cast<int>(q.extent(0)), shape());
  const TensorView workspace =
      context.workspace.take(DType::u8, {static_cast<std::int64_t>(bytes)});
  if (prompts.empty()) return;
  context.ops.mla_prompt_attention({.out = values,
                                    .q = q,
                                    .up = up_,
                                    .cache = cache_,
                                    .block_table = context.groups[group_].block_table,
                                    .query_start = context.query_start,
                                    .seq_lens = context.seq_lens,
                                    .prompts = prompts,
                                    .workspace = workspace,
                                    .cache_scale = cache_scale_,
                                    .scale = scale_},
                                   context.stream);
}

}  // namespace quire
