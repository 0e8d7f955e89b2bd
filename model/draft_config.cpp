#include "model/draft_config.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "model/architectures.h"
#include "model/config_parts.h"

namespace quire {

namespace {

constexpr std::size_t kMaxConfigBytes = 16u << 20;
constexpr IntRange kStreams{0, 1 << 12};

// What the layers are called decides only whether queries and keys are normed.
const Architecture& layer_architecture(const Json& layer) {
  const std::string type = layer.text({"model_type"}).value_or("llama");
  if (type == "llama") return *find_architecture("LlamaForCausalLM");
  if (type == "qwen3") return *find_architecture("Qwen3ForCausalLM");
  layer.fail_at("model_type", "\"" + type + "\" is not a layer of a draft model (llama, qwen3)",
                ErrorCode::unsupported);
}

void refuse_what_is_not_built(const DraftConfig& config, const Json& layer) {
  if (config.layer.rope.kind == RopeKind::longrope)
    layer.fail_at("rope_scaling", "longrope is not supported in a draft model",
                  ErrorCode::unsupported);
  if (!config.layer.quant.method.empty())
    layer.fail_at("quantization_config", "a quantized draft model is not supported",
                  ErrorCode::unsupported);
  if (std::ranges::any_of(config.layer.layer_types,
                          [](LayerType type) { return type != LayerType::full_attention; }))
    layer.fail_at("layer_types", "a draft's layers must be of full attention",
                  ErrorCode::unsupported);
}

// Variants that other tensors or another order of passes go with.
void refuse_variants(const Json& root) {
  const auto refuse = [](const Json& fields, std::string_view name, const std::string& why) {
    fields.fail_at(name, why, ErrorCode::unsupported);
  };
  if (root.boolean({"parallel_drafting"}).value_or(false))
    refuse(root, "parallel_drafting", "is not supported: drafts are made one after the other");
  if (root.boolean({"layernorms"}).value_or(false))
    refuse(root, "layernorms", "norms around an EAGLE head's layers are not supported");
  const auto eagle = root.object({"eagle_config"});
  if (eagle && !eagle->boolean({"use_aux_hidden_state"}).value_or(true))
    refuse(*eagle, "use_aux_hidden_state",
           "must be true: a head that reads the last hidden state alone is not supported");
  constexpr const char* kSteps = "parallel_draft_step";
  if (eagle && eagle->integer({kSteps}, {1, 1 << 10}).value_or(1) != 1)
    refuse(*eagle, kSteps, "must be 1: drafts are made one after the other");
}

std::vector<int> stream_layers(const Json& root) {
  constexpr const char* kName = "eagle_aux_hidden_state_layer_ids";
  const auto eagle = root.object({"eagle_config"});
  const Json& fields = root.has({kName}) || !eagle ? root : *eagle;
  const auto published = fields.integers({kName}, kStreams);
  if (!std::ranges::is_sorted(published, std::less_equal<>())) fields.fail_at(kName, "must ascend");
  return {published.begin(), published.end()};
}

// As vLLM takes it from a draft's config: "n_predict", or of "speculators" the first way to
// propose.
int published_number(const Json& root) {
  constexpr IntRange kNumber{1, 128};
  if (const auto number = root.integer({"n_predict"}, kNumber)) return *number;
  const auto said = root.object({"speculators_config"});
  const auto methods = said ? said->find({"proposal_methods"}) : std::optional<Json>();
  if (!methods || methods->items().empty()) return 0;
  return methods->items()[0].integer({"speculative_tokens"}, kNumber).value_or(0);
}

}  // namespace

DraftConfig parse_draft_config(std::string_view json, const std::filesystem::path& file) {
  const JsonDocument document(std::string(json), file);
  const Json root = document.object();
  const auto inner = root.object({"transformer_layer_config"});  // "speculators"
  const Json& layer = inner ? *inner : root;
  const auto flag = [&](std::string_view name, bool otherwise) {
    return root.boolean({name}).value_or(otherwise);
  };
  DraftConfig config{.layer = parse_config_as(layer_architecture(layer), root, layer, file)};
  config.draft_vocab_size =
      root.integer({"draft_vocab_size"}, {1, 1 << 24}).value_or(config.layer.vocab_size);
  config.stream_layers = stream_layers(root);
  config.norm_before_residual = flag("norm_before_residual", inner.has_value());
  config.norm_output = flag("norm_output", false);
  config.norm_each_stream = flag("fc_norm", false);
  config.norm_streams = flag("norm_before_fc", false);
  if (const auto said = root.object({"speculators_config"})) {
    if (const auto verifier = said->object({"verifier"}))
      config.targets = verifier->texts({"architectures"}).value_or(std::vector<std::string>{});
  }
  config.target_hidden_size = root.integer({"target_hidden_size"}, kWidth).value_or(0);
  config.target_fingerprint = root.text({"target_fingerprint"}).value_or("");
  config.form = root.text({"speculators_model_type"}).value_or("");
  config.num_speculative_tokens = published_number(root);
  refuse_what_is_not_built(config, layer);
  refuse_variants(root);
  return config;
}

DraftConfig read_draft_config(const std::filesystem::path& draft_dir) {
  const auto file = draft_dir / "config.json";
  return parse_draft_config(read_text_file(file, kMaxConfigBytes), file);
}

}  // namespace quire
