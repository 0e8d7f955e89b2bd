#include "model/layers/causal_lm.h"

#include <algorithm>

#include "backend/dispatch.h"
#include "model/layers/measure_workspace.h"

namespace quire {

namespace {

// Factors on the embedding are rounded to the model's dtype, as Gemma was trained.
float rounded(double value, DType dtype) {
  float out = 0.f;
  dispatch_float(dtype, [&]<class T>(Type<T>) {
    out = static_cast<float>(static_cast<T>(static_cast<float>(value)));
  });
  return out;
}

// Beside the text model, or inside the language half of a vision model.
std::string head_name(const Weights& weights, const HeadNames& names) {
  const std::string inner = "language_model." + names.lm_head;
  return weights.has(inner + ".weight") ? inner : names.lm_head;
}

// A tied head that stays packed is the embedding's table too.
bool is_packed_table(const Weights& weights, const ModelConfig& config, const std::string& embedding) {
  return config.tie_word_embeddings &&
         weights.groups_of(embedding + ".weight", {config.vocab_size, config.hidden_size})
             .has_value();
}

// A tied head is the embedding's plain table, but for one that stays packed.
Linear make_head(Weights& weights, const ModelConfig& config, const std::string& embedding,
                 const HeadNames& names) {
  const bool tied = config.tie_word_embeddings;
  if (tied && !is_packed_table(weights, config, embedding)) return {};
  const std::string name = tied ? embedding : head_name(weights, names);
  LinearPart part{name, config.vocab_size};
  if (!weights.shard().whole()) part.pick = rows_of(share_of(weights.shard(), config.vocab_size));
  return Linear(weights, {part}, config.hidden_size, false, LinearUse::head);
}

// As published, or none: what transformers' AutoModel saves is the text model alone.
std::string published_root(const Weights& weights, std::string root, const HeadNames& names) {
  const std::string embedding = names.embedding + ".weight";
  return !weights.has(root + embedding) && weights.has(embedding) ? "" : root;
}

TensorView load_table(Weights& weights, const std::string& name, const ModelConfig& config) {
  const Range own = share_of(weights.shard(), config.vocab_size);
  if (own.size() == 0)
    check_divides(weights.shard(), "vocab_size", config.vocab_size);
  Source table{.name = name + ".weight", .shape = {config.vocab_size, config.hidden_size}};
  if (!weights.shard().whole()) table.pick = rows_of(own);
  return weights.load({table}, {own.size(), config.hidden_size}, weights.dtype());
}

}  // namespace

std::string find_root(const Weights& weights, std::initializer_list<std::string> candidates,
                      const std::string& embedding) {
  for (const std::string& root : candidates) {
    if (weights.has(root + embedding + ".weight")) return root;
  }
  return *candidates.begin();
}

CausalLm::CausalLm(ModelSource source, std::string root, const HeadNames& names, float norm_offset)
    : config_(source.config),
      weights_(std::move(source.weights)),
      root_(published_root(*weights_, std::move(root), names)),
      stream_(source.device.stream()),
      ops_(source.ops),
      max_model_len_(source.max_model_len),
      same_bits_(source.same_bits),
      rope_(make_rope(*weights_, config_, max_model_len_)),
      looks_up_in_head_(is_packed_table(*weights_, config_, root_ + names.embedding)),
      embedding_(looks_up_in_head_
                     ? TensorView()
                     : load_table(*weights_, root_ + names.embedding, config_)),
      norm_(*weights_, root_ + names.norm, config_.hidden_size, config_.rms_norm_eps, norm_offset),
      lm_head_(make_head(*weights_, config_, root_ + names.embedding, names)),
      embedding_multiplier_(rounded(config_.embedding_multiplier, weights_->dtype())) {}

Mixer* CausalLm::add_mixer(std::unique_ptr<Mixer> mixer) {
  mixers_.push_back(std::move(mixer));
  return mixers_.back().get();
}

std::vector<LayerKvSpec> CausalLm::kv_specs(const KvSpecOptions& options) const {
  std::vector<LayerKvSpec> specs;
  for (const auto& mixer : mixers_) specs.push_back(mixer->cache_spec(options));
  return specs;
}

void CausalLm::bind_cache(std::span<const LayerCache> layers) {
  if (layers.size() != mixers_.size()) {
    throw Failure(ErrorCode::internal, "cache for " + std::to_string(layers.size()) +
                                           " layers, the model has " +
                                           std::to_string(mixers_.size()));
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    mixers_[i]->bind(layers[i]);
    num_groups_ = std::max(num_groups_, layers[i].group + 1);
  }
}

int CausalLm::num_unscaled_layers() const {
  return static_cast<int>(
      std::count_if(mixers_.begin(), mixers_.end(), [](auto& m) { return m->lacks_scale(); }));
}

void CausalLm::embed(TensorView out, TensorView ids, const ForwardContext& context) {
  embed_tokens(out, ids, context);
}

void CausalLm::forward(TensorView hidden, TensorView ids, const ForwardContext& context) {
  embed_and_run(hidden, ids, context);
}

void CausalLm::logits(TensorView logits, TensorView hidden, const ForwardContext& context) {
  head(logits, hidden, context);
}

void CausalLm::embed_and_run(TensorView hidden, TensorView ids,
                             const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const TensorView residual =
      context.workspace.take(DType::f32, {ids.extent(0), config_.hidden_size});
  embed_tokens(residual, ids, context);
  run_layers(hidden, residual, context);
}

void CausalLm::embed_tokens(TensorView out, TensorView ids, const ForwardContext& context) const {
  const Shard& shard = weights_->shard();
  const std::int64_t first = share_of(shard, config_.vocab_size).begin;
  if (looks_up_in_head_) {
    lm_head_.look_up(out, ids, first, context);
  } else if (!shard.whole()) {
    context.ops.embedding_share(out, embedding_, first, ids, context.stream);
  } else {
    context.ops.embedding(out, embedding_, ids, context.stream);
  }
  if (!shard.whole()) add_up(out, context);
  if (embedding_multiplier_ != 1.f) {
    context.ops.scale(out, embedding_multiplier_, context.stream);
  }
}

void CausalLm::head(TensorView logits, TensorView hidden, const ForwardContext& context) const {
  const Shard& shard = weights_->shard();
  if (shard.whole()) return own_head(logits, hidden, context);
  const Workspace::Scope scope(context.workspace);
  const Range own = share_of(shard, config_.vocab_size);
  const TensorView part = context.workspace.take(DType::f32, {hidden.extent(0), own.size()});
  own_head(part, hidden, context);
  context.collectives->gather_columns(logits, part, widest_share(shard, config_.vocab_size),
                                      context.stream);
}

void CausalLm::own_head(TensorView logits, TensorView hidden, const ForwardContext& context) const {
  if (lm_head_.empty()) {
    context.ops.linear(logits, hidden, embedding_, {}, context.stream);
  } else {
    lm_head_(logits, hidden, context);
  }
  if (config_.logits_divisor != 1.0) {
    context.ops.scale(logits, static_cast<float>(1.0 / config_.logits_divisor), context.stream);
  }
  if (config_.logits_soft_cap > 0) {
    context.ops.soft_cap(logits, static_cast<float>(config_.logits_soft_cap), context.stream);
  }
}

std::size_t CausalLm::workspace_bytes(int num_tokens, int num_rows) const {
  return measure_workspace(
      ops_, stream_, num_tokens, num_groups_, [&](const ForwardContext& context) {
        const TensorView hidden = unbacked(dtype(), {num_tokens, config_.hidden_size});
        embed_and_run(hidden, unbacked(DType::i32, {num_tokens}), context);
        head(unbacked(DType::f32, {num_rows, config_.vocab_size}),
             hidden.rows(0, std::min(num_rows, num_tokens)), context);
      });
}

}  // namespace quire
