// BERT and RoBERTa (XLM-R too): encoders. Words, positions and the text of a pair are summed; each
// layer norms what it gives; attention sees all of a request's tokens, so that nothing is kept and
// a prompt is one step.

#include <algorithm>
#include <cmath>

#include "backend/encoder_ops.h"
#include "model/arch/encoders.h"
#include "model/encoder.h"
#include "model/layers/linear.h"
#include "model/layers/measure_workspace.h"

namespace quire {

namespace {

EncoderOps& encoder_ops(const ForwardContext& context) {
  return dynamic_cast<EncoderOps&>(context.ops);  // who serves it has seen to that
}

class LayerNorm {
 public:
  LayerNorm(Weights& weights, const std::string& name, const ModelConfig& config)
      : weight_(weights.load(name + ".weight", {config.hidden_size})),
        bias_(weights.load(name + ".bias", {config.hidden_size})),
        eps_(static_cast<float>(config.rms_norm_eps)) {}

  // x ← norm(x)
  void operator()(TensorView x, const ForwardContext& context) const {
    encoder_ops(context).layer_norm(x, x, weight_, bias_, eps_, context.stream);
  }

 private:
  TensorView weight_, bias_;
  float eps_;
};

struct EncoderLayer {
  EncoderLayer(Weights& weights, const std::string& name, const ModelConfig& config)
      : qkv(weights,
            {{name + "attention.self.query", config.hidden_size},
             {name + "attention.self.key", config.hidden_size},
             {name + "attention.self.value", config.hidden_size}},
            config.hidden_size, true),
        attention_output(weights, {{name + "attention.output.dense", config.hidden_size}},
                         config.hidden_size, true, LinearUse::residual),
        attention_norm(weights, name + "attention.output.LayerNorm", config),
        intermediate(weights, {{name + "intermediate.dense", config.intermediate_size}},
                     config.hidden_size, true),
        output(weights, {{name + "output.dense", config.hidden_size}}, config.intermediate_size,
               true, LinearUse::residual),
        norm(weights, name + "output.LayerNorm", config) {}

  Linear qkv, attention_output;
  LayerNorm attention_norm;
  Linear intermediate, output;
  LayerNorm norm;
};

class Bert final : public EncoderModel {
 public:
  Bert(ModelSource source, const std::string& root)
      : config_(source.config),
        encoder_(read_encoder_config(config_)),
        weights_(std::move(source.weights)),
        stream_(source.device.stream()),
        ops_(source.ops),
        words_(table(root, "word_embeddings", config_.vocab_size)),
        positions_(table(root, "position_embeddings",
                         encoder_.first_position + config_.max_position_embeddings)),
        types_(encoder_.type_vocab_size == 0
                   ? TensorView()
                   : table(root, "token_type_embeddings", encoder_.type_vocab_size)),
        norm_(*weights_, root + "embeddings.LayerNorm", config_) {
    for (int i = 0; i < config_.num_layers; ++i)
      layers_.emplace_back(*weights_, root + "encoder.layer." + std::to_string(i) + ".", config_);
  }

  int vocab_size() const override { return config_.vocab_size; }
  int hidden_size() const override { return config_.hidden_size; }
  DType dtype() const override { return weights_->dtype(); }
  std::size_t weight_bytes() const override { return weights_->bytes(); }
  std::size_t mapped_bytes() const override { return weights_->mapped_bytes(); }
  std::vector<std::string> notes() const override { return weights_->notes(); }
  std::vector<LayerKvSpec> kv_specs(const KvSpecOptions&) const override { return {}; }
  void bind_cache(std::span<const LayerCache>) override {}

  void set_token_types(std::span<const std::int32_t> types) override {
    token_types_.assign(types.begin(), types.end());
    // A model that was trained with one kind of text has one row for both.
    if (encoder_.type_vocab_size < 2) std::ranges::fill(token_types_, 0);
  }

  std::size_t workspace_bytes(int num_tokens, int) const override {
    return measure_workspace(ops_, stream_, num_tokens, 0, [&](const ForwardContext& context) {
      run(unbacked(dtype(), {num_tokens, config_.hidden_size}), unbacked(DType::i32, {num_tokens}),
          context);
    });
  }

  void embed(TensorView out, TensorView ids, const ForwardContext& context) override {
    context.ops.embedding(out, words_, ids, context.stream);
  }
  void forward(TensorView hidden, TensorView ids, const ForwardContext& context) override {
    token_types_.resize(static_cast<std::size_t>(ids.extent(0)));
    run(hidden, ids, context);
    token_types_.clear();
  }
  void logits(TensorView, TensorView, const ForwardContext&) override {
    throw Failure(ErrorCode::internal, config_.architecture + " has no logits");
  }

 private:
  TensorView table(const std::string& root, const std::string& name, int rows) {
    return weights_->load(root + "embeddings." + name + ".weight", {rows, config_.hidden_size});
  }

  // stream f32 [T, hidden]
  void sum_embeddings(TensorView stream, TensorView part, TensorView ids,
                      const ForwardContext& context) const {
    Ops& ops = context.ops;
    ops.embedding(stream, words_, ids, context.stream);
    const auto add = [&](TensorView rows, TensorView which) {
      ops.embedding(part, rows, which, context.stream);
      ops.add(stream, stream, part, context.stream);
    };
    add(positions_.rows(encoder_.first_position, positions_.extent(0)), context.positions);
    if (types_.empty()) return;
    add(types_, TensorView(token_types_.data(), DType::i32, {ids.extent(0)}));
  }

  void attend(TensorView update, TensorView x, const EncoderLayer& layer,
              const ForwardContext& context) const {
    const std::int64_t tokens = x.extent(0), width = config_.hidden_size;
    const Workspace::Scope scope(context.workspace);
    const TensorView qkv = context.workspace.take(x.dtype(), {tokens, 3 * width});
    const TensorView attended = context.workspace.take(x.dtype(), {tokens, width});
    layer.qkv(qkv, x, context);
    const auto part = [&](int i) {
      return qkv.narrow(1, i * width, (i + 1) * width).split_last(config_.head_dim);
    };
    encoder_ops(context).encoder_attention(
        {.out = attended.split_last(config_.head_dim),
         .q = part(0),
         .k = part(1),
         .v = part(2),
         .query_start = context.query_start,
         .scale = static_cast<float>(1.0 / std::sqrt(config_.head_dim))},
        context.stream);
    layer.attention_output(update, attended, context);
  }

  void feed_forward(TensorView update, TensorView x, const EncoderLayer& layer,
                    const ForwardContext& context) const {
    const Workspace::Scope scope(context.workspace);
    const TensorView inner =
        context.workspace.take(x.dtype(), {x.extent(0), config_.intermediate_size});
    layer.intermediate(inner, x, context);
    if (encoder_.exact_gelu) {
      encoder_ops(context).gelu(inner, context.stream);
    } else {
      context.ops.activation(inner, inner, config_.activation, context.stream);
    }
    layer.output(update, inner, context);
  }

  void run(TensorView hidden, TensorView ids, const ForwardContext& context) const {
    const Workspace::Scope scope(context.workspace);
    const auto rows = [&] {
      return context.workspace.take(DType::f32, {ids.extent(0), config_.hidden_size});
    };
    const TensorView stream = rows(), update = rows();
    sum_embeddings(stream, update, ids, context);
    const auto settle = [&](const LayerNorm& norm) {
      norm(stream, context);
      context.ops.copy(hidden, stream, context.stream);
    };
    settle(norm_);
    for (const EncoderLayer& layer : layers_) {
      attend(update, hidden, layer, context);
      context.ops.add(stream, stream, update, context.stream);
      settle(layer.attention_norm);
      feed_forward(update, hidden, layer, context);
      context.ops.add(stream, stream, update, context.stream);
      settle(layer.norm);
    }
  }

  ModelConfig config_;
  EncoderConfig encoder_;
  std::unique_ptr<Weights> weights_;
  StreamRef stream_;
  const OpsTraits& ops_;
  TensorView words_, positions_, types_;
  LayerNorm norm_;
  std::vector<EncoderLayer> layers_;
  mutable std::vector<std::int32_t> token_types_;  // of the step
};

}  // namespace

std::unique_ptr<Model> make_bert(ModelSource source) {
  std::string root;
  for (const std::string prefix : {"bert.", "roberta."}) {
    if (source.weights->has(prefix + "embeddings.word_embeddings.weight")) root = prefix;
  }
  return std::make_unique<Bert>(std::move(source), root);
}

}  // namespace quire
