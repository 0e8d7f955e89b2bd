#include "model/gguf/config.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "base/json_text.h"
#include "gguf/archive.h"
#include "gguf/codes.h"
#include "gguf/end_tokens.h"
#include "gguf/printable.h"
#include "model/gguf/family.h"

namespace quire {

namespace {

constexpr IntRange kWidths{1, 1 << 20};
constexpr IntRange kCounts{1, 1 << 14};
constexpr IntRange kContext{1, 1 << 28};
constexpr IntRange kIds{0, (1 << 28) - 1};

std::string number_text(double value) {
  char digits[32];
  // Metadata are float32: the shortest text that reads as that is what was published.
  const auto narrow = static_cast<float>(value);
  const auto end = static_cast<double>(narrow) == value
                       ? std::to_chars(digits, digits + sizeof digits, narrow).ptr
                       : std::to_chars(digits, digits + sizeof digits, value).ptr;
  return {digits, end};
}

class Object {
 public:
  void raw(std::string_view name, std::string_view json) {
    text_ += text_.size() > 1 ? "," : "";
    append_json_text(text_, name);
    text_ += ':';
    text_ += json;
  }
  void text(std::string_view name, std::string_view value) {
    std::string json;
    append_json_text(json, value);
    raw(name, json);
  }
  void number(std::string_view name, double value) { raw(name, number_text(value)); }
  void flag(std::string_view name, bool value) { raw(name, value ? "true" : "false"); }
  template <class Values>
  void numbers(std::string_view name, const Values& values) {
    std::string json = "[";
    for (const auto value : values) {
      json += (json.size() > 1 ? "," : "") + number_text(static_cast<double>(value));
    }
    raw(name, json + "]");
  }
  std::string finish() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

class ConfigWriter {
 public:
  explicit ConfigWriter(const std::filesystem::path& path)
      : archive_(path), metadata_(archive_.metadata()), family_(gguf_family(metadata_)) {}

  std::string write() {
    out_.text("model_type", "gguf");
    out_.raw("architectures", "[\"" + std::string(published()) + "\"]");
    out_.text("torch_dtype", dtype());
    if (metadata_.boolean(key("attention.causal")) == false)
      metadata_.fail(key("attention.causal"), "false is not supported", ErrorCode::unsupported);
    write_sizes();
    write_tokens();
    write_rope();
    write_window();
    write_multipliers();
    if (metadata_.has(key("expert_count"))) write_experts();
    return out_.finish();
  }

 private:
  std::string key(std::string_view name) const { return family_key(family_, name); }
  bool is(std::string_view architecture) const { return family_.architecture == architecture; }
  bool gemma() const { return is("gemma2") || is("gemma3"); }

  const gguf::TensorInfo& need_tensor(std::string_view name, std::size_t rank) const {
    const gguf::TensorInfo* tensor = archive_.find(name);
    if (tensor != nullptr && tensor->shape.size() == rank) return *tensor;
    throw Failure(ErrorCode::invalid_argument,
                  metadata_.file().string() + ": tensor \"" + std::string(name) + "\" " +
                      (tensor == nullptr ? "is missing" : "has another rank") + ", expected rank " +
                      std::to_string(rank));
  }

  bool has_biases() const { return archive_.find("blk.0.attn_q.bias") != nullptr; }
  // A llama with biases on queries, keys and values alone is what Qwen2 is.
  std::string_view published() const {
    const bool only_inner = archive_.find("blk.0.attn_output.bias") == nullptr;
    return is("llama") && has_biases() && only_inner ? "Qwen2ForCausalLM" : family_.published;
  }

  // Of most of the matrices' elements; quantized ones are computed with in bfloat16.
  std::string_view dtype() const {
    std::int64_t f32 = 0, f16 = 0, all = 0;
    for (const auto& shard : archive_.shards()) {
      for (const gguf::TensorInfo& tensor : shard->header.tensors) {
        if (tensor.shape.size() < 2) continue;
        const auto elements = static_cast<std::int64_t>(tensor.bytes) / tensor.type->bytes *
                              tensor.type->elements;
        all += elements;
        if (tensor.type->type == gguf::BlockType::f32) f32 += elements;
        if (tensor.type->type == gguf::BlockType::f16) f16 += elements;
      }
    }
    return 2 * f32 > all ? "float32" : 2 * f16 > all ? "float16" : "bfloat16";
  }

  std::int64_t head_count() const {
    return metadata_.need_integer(key("attention.head_count"), kCounts);
  }
  std::int64_t width() const { return metadata_.need_integer(key("embedding_length"), kWidths); }
  std::int64_t head_dim() const {
    return metadata_.integer(key("attention.key_length"), kWidths)
        .value_or(std::max<std::int64_t>(1, width() / head_count()));
  }

  void write_sizes() {
    const auto& embedding = need_tensor("token_embd.weight", 2);
    out_.number("vocab_size", static_cast<double>(embedding.shape[0]));
    out_.number("hidden_size", static_cast<double>(width()));
    out_.number("num_hidden_layers", static_cast<double>(metadata_.need_integer(
                                         key("block_count"), {1, 1 << 12})));
    out_.number("num_attention_heads", static_cast<double>(head_count()));
    out_.number("num_key_value_heads", static_cast<double>(same_for_all_layers(
                                           "attention.head_count_kv", head_count())));
    out_.number("head_dim", static_cast<double>(head_dim()));
    const auto value_length = metadata_.integer(key("attention.value_length"), kWidths);
    if (value_length && *value_length != head_dim()) {
      metadata_.fail(key("attention.value_length"),
                     "must be attention.key_length, " + std::to_string(head_dim()));
    }
    out_.number("intermediate_size", static_cast<double>(same_for_all_layers(
                                         "feed_forward_length", std::nullopt)));
    out_.number("max_position_embeddings",
                static_cast<double>(metadata_.need_integer(key("context_length"), kContext)));
    const std::string eps = key("attention.layer_norm_rms_epsilon");
    const auto rms_eps = metadata_.number(eps);
    if (!rms_eps) metadata_.fail(eps, "is missing");
    out_.number("rms_norm_eps", *rms_eps);
    if (gemma()) out_.text("hidden_activation", "gelu_pytorch_tanh");
    out_.flag("tie_word_embeddings", archive_.find("output.weight") == nullptr);
    out_.flag("attention_bias", has_biases());
    out_.flag("mlp_bias", archive_.find("blk.0.ffn_up.bias") != nullptr);
  }

  std::int64_t same_for_all_layers(std::string_view name, std::optional<std::int64_t> otherwise) {
    const auto all = metadata_.integers(key(name), kWidths);
    if (all.empty() && otherwise) return *otherwise;
    if (all.empty()) metadata_.fail(key(name), "is missing");
    for (const std::int64_t one : all) {
      if (one != all.front()) {
        metadata_.fail(key(name), "differs between layers, which is not supported",
                       ErrorCode::unsupported);
      }
    }
    return all.front();
  }

  void write_tokens() {
    if (const auto bos = metadata_.integer("tokenizer.ggml.bos_token_id", kIds)) {
      out_.number("bos_token_id", static_cast<double>(*bos));
    }
    const auto ends = gguf::end_tokens(metadata_);
    if (!ends.empty()) out_.numbers("eos_token_id", ends);
  }

  std::vector<float> factors(std::string_view tensor) const {
    const gguf::TensorInfo& info = need_tensor(tensor, 1);
    for (const auto& shard : archive_.shards()) {
      for (const gguf::TensorInfo& own : shard->header.tensors) {
        if (&own != &info) continue;
        if (!info.type->readable) {
          throw Failure(ErrorCode::unsupported, shard->path.string() + ": tensor \"" +
                                                    std::string(tensor) + "\" is stored as " +
                                                    std::string(info.type->name));
        }
        std::vector<float> values(static_cast<std::size_t>(info.shape[0]));
        gguf::dequantize(info.type->type, shard->map.data() + info.begin, info.shape[0],
                         values.data());
        return values;
      }
    }
    return {};
  }

  // A factor for each pair of dimensions: Llama 3's wavelengths, in published form one rule with
  // four numbers, are here a list; so both of longrope's lists are that one.
  void write_factors(Object& rope, std::string_view below, std::string_view above) {
    rope.text("rope_type", "longrope");
    rope.numbers("short_factor", factors(below));
    rope.numbers("long_factor", factors(above));
  }

  void write_rope() {
    Object rope;
    if (const auto theta = metadata_.number(key("rope.freq_base"))) {
      out_.number("rope_theta", *theta);
    } else {
      out_.number("rope_theta", is("gemma3") ? 1e6 : 1e4);
    }
    if (is("gemma3")) {
      out_.number("rope_local_base_freq",
                  metadata_.number(key("rope.freq_base_swa")).value_or(10000));
    }
    if (const auto rotary = metadata_.integer(key("rope.dimension_count"), {1, head_dim()})) {
      out_.number("partial_rotary_factor",
                  static_cast<double>(*rotary) / static_cast<double>(head_dim()));
    }
    if (write_scaling(rope)) out_.raw("rope_scaling", rope.finish());
  }

  bool write_scaling(Object& rope) {
    const auto attention = metadata_.number(key("rope.scaling.attn_factor"));
    const auto trained = metadata_.integer(key("rope.scaling.original_context_length"), kContext);
    if (archive_.find("rope_freqs.weight") != nullptr) {
      write_factors(rope, "rope_freqs.weight", "rope_freqs.weight");
      rope.number("attention_factor", 1);
      return true;
    }
    if (archive_.find("rope_factors_long.weight") != nullptr) {
      write_factors(rope, "rope_factors_short.weight", "rope_factors_long.weight");
      if (trained) out_.number("original_max_position_embeddings", static_cast<double>(*trained));
      if (attention) rope.number("attention_factor", *attention);
      return true;
    }
    const std::string type_key = key("rope.scaling.type");
    const std::string_view type = metadata_.text(type_key).value_or("linear");  // as llama.cpp
    if (type == "none") return false;
    if (type != "linear" && type != "yarn") {
      metadata_.fail(type_key, gguf::printable(type) + " is not supported (none, linear, yarn)",
                     ErrorCode::unsupported);
    }
    auto factor = metadata_.number(key("rope.scaling.factor"));
    if (!factor) factor = metadata_.number(key("rope.scale_linear"));  // its older name
    if (!factor && metadata_.has(type_key)) metadata_.fail(key("rope.scaling.factor"), "is missing");
    if (!factor || *factor == 0) return false;  // llama.cpp's sign for none
    rope.text("rope_type", type);
    rope.number("factor", *factor);
    if (trained) out_.number("original_max_position_embeddings", static_cast<double>(*trained));
    if (attention && *attention != 1) rope.number("attention_factor", *attention);
    for (const auto& [stored, published] :
         {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
          std::pair{"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
      if (const auto value = metadata_.number(key(stored))) rope.number(published, *value);
    }
    return true;
  }

  void write_window() {
    const auto window = metadata_.integer(key("attention.sliding_window"), {0, kContext.max});
    if (!window || *window == 0) return;
    out_.number("sliding_window", static_cast<double>(*window));
    out_.flag("use_sliding_window", true);
    const auto pattern =
        metadata_.integers(key("attention.sliding_window_pattern"), {0, 1 << 12});
    if (pattern.size() == 1) {
      out_.number("sliding_window_pattern", static_cast<double>(pattern.front()));
    } else if (!pattern.empty()) {
      std::string types;
      for (const std::int64_t sliding : pattern) {
        types += (types.empty() ? "[" : ",");
        types += sliding != 0 ? "\"sliding_attention\"" : "\"full_attention\"";
      }
      out_.raw("layer_types", types + "]");
    }
  }

  void write_multipliers() {
    const auto copy = [&](std::string_view stored, std::string_view published) {
      if (const auto value = metadata_.number(key(stored))) out_.number(published, *value);
    };
    copy("attn_logit_softcapping", "attn_logit_softcapping");
    copy("final_logit_softcapping", "final_logit_softcapping");
    if (gemma()) return out_.number("query_pre_attn_scalar", query_scalar());
    if (!is("granite")) return;
    copy("attention.scale", "attention_multiplier");
    copy("embedding_scale", "embedding_multiplier");
    copy("residual_scale", "residual_multiplier");
    copy("logit_scale", "logits_scaling");
  }

  // The file does not say it: the 27B models divide by the width of a head's share, others by
  // head_dim.
  double query_scalar() const {
    if (const auto scale = metadata_.number(key("attention.scale"))) return 1 / (*scale * *scale);
    const std::int64_t layers = metadata_.need_integer(key("block_count"), {1, 1 << 12});
    const bool largest = layers == (is("gemma2") ? 46 : 62);
    return largest ? static_cast<double>(width()) / static_cast<double>(head_count())
                   : static_cast<double>(head_dim());
  }

  void write_experts() {
    out_.number("num_experts",
                static_cast<double>(metadata_.need_integer(key("expert_count"), kCounts)));
    out_.number("num_experts_per_tok",
                static_cast<double>(metadata_.need_integer(key("expert_used_count"), kCounts)));
    if (const auto inner = metadata_.integer(key("expert_feed_forward_length"), kWidths)) {
      out_.number("moe_intermediate_size", static_cast<double>(*inner));
    }
    out_.flag("norm_topk_prob", true);
  }

  gguf::Archive archive_;
  const gguf::Metadata& metadata_;
  const GgufFamily& family_;
  Object out_;
};

}  // namespace

std::string gguf_config_json(const std::filesystem::path& path) {
  return ConfigWriter(path).write();
}

}  // namespace quire
