#include "model/layers/draft_base.h"

#include <algorithm>
#include <utility>

#include "model/layers/measure_workspace.h"

namespace quire {

DraftBase::DraftBase(DraftParts parts)
    : config_(std::move(parts.config)),
      target_(parts.target),
      weights_(std::move(parts.weights)),
      device_(parts.device),
      ops_(parts.ops),
      rope_(make_rope(*weights_, config_, parts.max_model_len)) {}

Mixer* DraftBase::add_mixer(std::unique_ptr<Mixer> mixer) {
  mixers_.push_back(std::move(mixer));
  return mixers_.back().get();
}

void DraftBase::load_embedding(const std::string& name) {
  if (weights_->has(name))
    embedding_ = weights_->load(name, {config_.vocab_size, config_.hidden_size});
}

void DraftBase::load_head(const std::string& name, int vocab_size) {
  if (weights_->has(name) || vocab_size != target_.vocab_size())
    head_ = weights_->load(name, {vocab_size, config_.hidden_size});
}

std::int64_t DraftBase::features() const {
  const auto streams = static_cast<std::int64_t>(stream_layers().size());
  return std::max<std::int64_t>(streams, 1) * target_.hidden_size();
}

// What stands in the checkpoint's place of "model." says whose layer it is.
std::vector<LayerKvSpec> DraftBase::kv_specs(const KvSpecOptions& options) const {
  std::vector<LayerKvSpec> specs;
  for (std::size_t i = 0; i < mixers_.size(); ++i) {
    LayerKvSpec& spec = specs.emplace_back(mixers_[i]->cache_spec(options));
    const std::size_t dot = spec.layer.rfind('.');
    spec.layer = "draft.layers." + std::to_string(i) + spec.layer.substr(dot);
  }
  return specs;
}

void DraftBase::bind_cache(std::span<const LayerCache> layers) {
  if (layers.size() != mixers_.size())
    throw Failure(ErrorCode::internal, "cache for " + std::to_string(layers.size()) +
                                           " layers, the draft model has " +
                                           std::to_string(mixers_.size()));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    mixers_[i]->bind(layers[i]);
    num_groups_ = std::max(num_groups_, layers[i].group + 1);
  }
}

void DraftBase::combine(TensorView states, TensorView features, const ForwardContext& context) {
  context.ops.copy(states, features, context.stream);
}

void DraftBase::logits(TensorView logits, TensorView states, const ForwardContext& context) {
  if (head_.empty()) return target_.logits(logits, states, context);
  context.ops.linear(logits, states, head_, {}, context.stream);
}

void DraftBase::embed(TensorView out, TensorView ids, const ForwardContext& context) const {
  if (embedding_.empty()) return target_.embed(out, ids, context);
  context.ops.embedding(out, embedding_, ids, context.stream);
}

TensorView DraftBase::pick(TensorView x, const LastTokens& last, const ForwardContext& context) {
  if (last.empty()) return x;
  const TensorView few = context.workspace.take(x.dtype(), {last.rows.extent(0), x.extent(1)});
  context.ops.gather_rows(few, x, last.rows, context.stream);
  return few;
}

TensorView DraftBase::side_by_side(TensorView a, TensorView b,
                                   const ForwardContext& context) const {
  const std::int64_t first = a.extent(1), all = first + b.extent(1);
  const TensorView both = context.workspace.take(a.dtype(), {a.extent(0), all});
  context.ops.copy(both.narrow(1, 0, first), a, context.stream);
  context.ops.copy(both.narrow(1, first, all), b, context.stream);
  return both;
}

std::size_t DraftBase::workspace_bytes(int num_tokens, int num_rows) const {
  auto& self = const_cast<DraftBase&>(*this);  // the calls that are measured change nothing
  return measure_workspace(
      ops_, device_.stream(), num_tokens, num_groups_, [&](const ForwardContext& context) {
        const TensorView states = unbacked(dtype(), {num_tokens, hidden_size()});
        self.combine(states, unbacked(dtype(), {num_tokens, features()}), context);
        const TensorView ids = unbacked(DType::i32, {num_tokens});
        self.forward(states, ids, states, {}, {}, context);
        const int num_last = std::min(num_rows, num_tokens);
        self.forward(states.rows(0, num_last), ids, states, {},
                     {unbacked(DType::i32, {num_last}), unbacked(DType::i32, {num_last + 1})},
                     context);
        self.logits(unbacked(DType::f32, {num_rows, vocab_size()}),
                    states.rows(0, std::min(num_rows, num_tokens)), context);
      });
}

}  // namespace quire
