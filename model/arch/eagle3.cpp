// EAGLE-3 (arXiv 2503.01840): one layer whose attention reads the next token's embedding and a
// state side by side, each under a norm of its own. The state is first made of several of the
// target's streams. The head may know only some of the target's tokens.

#include <numeric>

#include "model/arch/drafts.h"
#include "model/checkpoint.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/norm.h"

namespace quire {

namespace {

// d2t, what is added to an id of the draft: no float, so no weight.
std::vector<std::int32_t> read_target_ids(const std::filesystem::path& directory, int draft_vocab,
                                          int target_vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(draft_vocab));
  std::iota(ids.begin(), ids.end(), 0);
  const Checkpoint checkpoint(directory);
  const Checkpoint::Entry* entry = checkpoint.find("d2t");
  if (entry == nullptr) return {};
  const auto fail = [&](const std::string& what) {
    throw Failure(ErrorCode::invalid_argument,
                  entry->file->path().string() + ": tensor \"d2t\" " + what);
  };
  if (entry->tensor->dtype != DType::i64 ||
      entry->tensor->shape != std::vector<std::int64_t>{draft_vocab})
    fail("must be int64 [" + std::to_string(draft_vocab) + "] (draft_vocab_size), is " +
         std::string(name_of(entry->tensor->dtype)) + " " + shape_text(entry->tensor->shape));
  const std::byte* data = entry->file->data(*entry->tensor);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::int64_t offset;
    std::memcpy(&offset, data + i * sizeof offset, sizeof offset);
    if (offset < -ids[i] || offset >= target_vocab - ids[i])
      fail("sends token " + std::to_string(i) + " to none of the target's " +
           std::to_string(target_vocab));
    ids[i] += static_cast<std::int32_t>(offset);
  }
  return ids;
}

class Eagle3 final : public DraftBase {
 public:
  Eagle3(DraftParts parts, const DraftConfig& draft)
      : DraftBase(std::move(parts)),
        norm_before_residual_(draft.norm_before_residual),
        norm_output_(draft.norm_output),
        vocab_size_(draft.draft_vocab_size),
        stream_layers_(draft.stream_layers) {
    const std::string root = weights().has("model.fc.weight") ? "model." : "";
    load_embedding(root + "embed_tokens.weight");
    load_combiner(draft, root);
    const bool middle = weights().has(root + "midlayer.hidden_norm.weight");
    load_layer(root + (middle ? "midlayer." : "layers.0."));
    norm_ = norm(root + "norm", config().hidden_size);
    load_head("lm_head.weight", vocab_size_);
  }

  int vocab_size() const override { return vocab_size_; }
  std::span<const int> stream_layers() const override { return stream_layers_; }
  TensorView target_ids() const override { return target_ids_; }

  void set_target_ids(const std::vector<std::int32_t>& ids) {
    target_ids_ = weights().put(ids.data(), {vocab_size_, 1}, DType::i32);
  }

  void combine(TensorView states, TensorView features, const ForwardContext& context) override {
    const Workspace::Scope scope(context.workspace);
    const TensorView x = context.workspace.take(dtype(), {features.extent(0), features.extent(1)});
    context.ops.copy(x, features, context.stream);
    if (!streams_norm_.empty()) streams_norm_(x, x, context);
    const std::int64_t width = target().hidden_size();
    for (std::size_t i = 0; i < stream_norms_.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(i) * width;
      const TensorView one = x.narrow(1, begin, begin + width);
      stream_norms_[i](one, one, context);
    }
    fc_(states, x, context);
  }

  void forward(TensorView out, TensorView ids, TensorView states, std::span<const int>,
               const LastTokens& last, const ForwardContext& context) override {
    const Workspace::Scope scope(context.workspace);
    const std::int64_t tokens = ids.extent(0), width = hidden_size(), asked = out.extent(0);
    TensorView x = context.workspace.take(dtype(), {tokens, width});
    const TensorView normed = context.workspace.take(dtype(), {tokens, width});
    const TensorView residual = context.workspace.take(DType::f32, {asked, width});
    const TensorView y = context.workspace.take(DType::f32, {asked, width});
    embed(x, ids, context);
    input_norm_(x, x, context);
    hidden_norm_(normed, states, context);
    context.ops.copy(residual, pick(norm_before_residual_ ? normed : states, last, context),
                     context.stream);
    mixer_->of_last(y, side_by_side(x, normed, context), last, context);
    x = x.rows(0, asked);
    feed_forward_norm_.add(x, residual, y, context);
    (*feed_forward_)(y, x, context);
    if (norm_output_) return norm_.add(out, residual, y, context);
    context.ops.add(y, residual, y, context.stream);
    context.ops.copy(out, y, context.stream);
  }

  void logits(TensorView logits, TensorView states, const ForwardContext& context) override {
    const Workspace::Scope scope(context.workspace);
    TensorView x = states;
    if (!norm_output_) {
      x = context.workspace.take(dtype(), {states.extent(0), states.extent(1)});
      norm_(x, states, context);
    }
    DraftBase::logits(logits, x, context);
  }

 private:
  RmsNorm norm(const std::string& name, std::int64_t width) {
    return RmsNorm(weights(), name, width, config().rms_norm_eps);
  }

  void load_combiner(const DraftConfig& draft, const std::string& root) {
    const std::int64_t width = target().hidden_size();
    if (draft.norm_streams) streams_norm_ = norm(root + "input_norm", features());
    for (std::size_t i = 0; draft.norm_each_stream && i < stream_layers_.size(); ++i)
      stream_norms_.push_back(norm(root + "fc_norm." + std::to_string(i), width));
    fc_ = Linear(weights(), {{root + "fc", config().hidden_size}}, features(),
                 weights().has(root + "fc.bias"));
  }

  void load_layer(const std::string& name) {
    const ModelConfig& c = config();
    AttentionOptions attention = attention_options(c, 0, name + "self_attn", rope());
    attention.input_size = 2 * c.hidden_size;
    input_norm_ = norm(name + "input_layernorm", c.hidden_size);
    hidden_norm_ = norm(name + "hidden_norm", c.hidden_size);
    feed_forward_norm_ = norm(name + "post_attention_layernorm", c.hidden_size);
    mixer_ = add_mixer(std::make_unique<Attention>(weights(), attention));
    feed_forward_ = std::make_unique<GatedMlp>(weights(), name + "mlp", c.hidden_size,
                                               c.intermediate_size, c.activation, c.mlp_bias);
  }

  bool norm_before_residual_, norm_output_;
  int vocab_size_;
  std::vector<int> stream_layers_;
  RmsNorm streams_norm_;               // of all streams together, optional
  std::vector<RmsNorm> stream_norms_;  // of each, optional
  Linear fc_;
  RmsNorm input_norm_, hidden_norm_, feed_forward_norm_, norm_;
  Mixer* mixer_ = nullptr;
  std::unique_ptr<FeedForward> feed_forward_;
  TensorView target_ids_;  // i32 [draft vocabulary, 1]
};

}  // namespace

std::unique_ptr<DraftModel> make_eagle3(DraftParts parts, const DraftConfig& config) {
  const int own = config.draft_vocab_size, targets = parts.target_config.vocab_size;
  const bool has_files = Checkpoint::is_in(parts.directory);
  auto ids =
      has_files ? read_target_ids(parts.directory, own, targets) : std::vector<std::int32_t>();
  if (ids.empty() && own != targets) {
    if (has_files || own > targets)
      throw Failure(ErrorCode::invalid_argument,
                    config.layer.file.string() + ": draft_vocab_size: is " + std::to_string(own) +
                        ", the target's vocabulary " + std::to_string(targets) +
                        "; tensor \"d2t\" is missing, which says what the draft's tokens are");
    ids.resize(static_cast<std::size_t>(own));
    std::iota(ids.begin(), ids.end(), 0);
  }
  auto draft = std::make_unique<Eagle3>(std::move(parts), config);
  if (!ids.empty()) draft->set_target_ids(ids);
  return draft;
}

}  // namespace quire
