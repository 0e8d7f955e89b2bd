#include "model/draft_registry.h"

#include <algorithm>
#include <utility>

#include "model/arch/drafts.h"
#include "model/checkpoint.h"
#include "model/draft_config.h"

namespace quire {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& field,
                         const std::string& why, ErrorCode code = ErrorCode::invalid_argument) {
  throw Failure(Error{code, file.string() + ": " + field + ": " + why, field});
}

DraftParts parts_of(const DraftSource& source, const ModelConfig& config, Device& device,
                    const OpsTraits& ops, const LoadOptions& options) {
  auto weights =
      std::make_unique<Weights>(source.directory, options.load_format, options.seed, options.dtype,
                                device, config.quant.fp8, options.measure);
  const int native = source.target_config.max_position_embeddings;
  return {.config = config,
          .target_config = source.target_config,
          .target = source.target,
          .weights = std::move(weights),
          .directory = source.directory,
          .device = device,
          .ops = ops,
          .max_model_len = options.max_model_len > 0 ? options.max_model_len : native,
          .measure = options.measure};
}

// What the draft takes from the target, or gives back to it.
void check_match(const DraftConfig& draft, const DraftSource& source) {
  const ModelConfig &own = draft.layer, &target = source.target_config;
  const auto differs = [&](const std::string& field, int found, int expected) {
    refuse(own.file, field,
           "is " + std::to_string(found) + ", the target's is " + std::to_string(expected));
  };
  const auto& made_for = draft.targets;
  if (!made_for.empty() && std::ranges::find(made_for, target.architecture) == made_for.end())
    refuse(own.file, "speculators_config.verifier.architectures",
           "the draft was made for " + made_for.front() + ", the target is " + target.architecture);
  const std::string form = source.form == DraftForm::eagle3 ? "eagle3" : "eagle";
  if (!draft.form.empty() && draft.form != form)
    refuse(own.file, "speculators_model_type",
           "is \"" + draft.form + "\", the method is \"" + form + "\"");
  if (own.vocab_size != target.vocab_size) differs("vocab_size", own.vocab_size, target.vocab_size);
  if (own.hidden_size != target.hidden_size)
    differs("hidden_size", own.hidden_size, target.hidden_size);
  if (draft.target_hidden_size > 0 && draft.target_hidden_size != target.hidden_size)
    differs("target_hidden_size", draft.target_hidden_size, target.hidden_size);
}

// Many heads are published as a pickle alone.
void check_files(const DraftSource& source, const LoadOptions& options) {
  if (options.load_format != LoadFormat::safetensors || Checkpoint::is_in(source.directory)) return;
  for (const char* name : {"pytorch_model.bin", "model.pt", "model.bin"})
    if (std::filesystem::exists(source.directory / name))
      throw Failure(ErrorCode::unsupported,
                    source.directory.string() + ": has weights as " + name +
                        " only, a pickle, which is not read: a program could be in it. Write its " +
                        "tensors to model.safetensors (safetensors.torch.save_file in Python)");
}

// (2, L / 2, L − 3), as published drafts that do not say are trained.
std::vector<int> streams_of(const DraftConfig& draft, const DraftSource& source) {
  constexpr const char* kField = "eagle_aux_hidden_state_layer_ids";
  const int layers = source.target_config.num_layers;
  std::vector<int> streams = draft.stream_layers;
  if (streams.empty()) streams = {2, layers / 2, layers - 3};
  const bool ascend = std::ranges::is_sorted(streams, std::less_equal<>());
  if (!ascend || streams.front() < 0 || streams.back() > layers)
    refuse(draft.layer.file, kField,
           draft.stream_layers.empty()
               ? "is missing, and a target of " + std::to_string(layers) + " layers has no default"
               : "the target has " + std::to_string(layers) + " layers");
  if (!source.target.hands_out_streams())
    refuse(source.target_config.file, "architectures",
           source.target_config.architecture + " does not hand out the hidden states of its " +
               "layers, which EAGLE-3 reads; use method eagle or ngram",
           ErrorCode::unsupported);
  return streams;
}

std::unique_ptr<DraftModel> load_mtp(const DraftSource& source, Device& device,
                                     const OpsTraits& ops, const LoadOptions& options) {
  const ModelConfig& config = source.target_config;
  DraftParts parts = parts_of(source, config, device, ops, options);
  const std::string& name = config.architecture;
  const bool is_glm = name == "Glm4MoeForCausalLM";
  const bool is_layer = is_glm || name == "DeepseekV3ForCausalLM";
  if (!is_layer && !name.starts_with("Qwen3Next") && !name.starts_with("Qwen3_5"))
    refuse(config.file, "architectures",
           "method mtp knows no module of " + name +
               " (DeepseekV3ForCausalLM, Glm4MoeForCausalLM, Qwen3NextForCausalLM, Qwen3_5*)",
           ErrorCode::unsupported);
  const auto layer = [&](int more) {
    return "model.layers." + std::to_string(config.num_layers + more) + ".eh_proj.weight";
  };
  const std::string probe = is_layer ? layer(0) : "mtp.fc.weight";
  if (parts.weights->has(is_layer ? layer(1) : "mtp.layers.1.input_layernorm.weight"))
    refuse(config.file, is_layer ? "num_nextn_predict_layers" : "mtp_num_hidden_layers",
           "several modules behind each other are not supported", ErrorCode::unsupported);
  // Of a folder without weights only sizes are asked for.
  const bool has_weights = !options.measure || Checkpoint::is_in(source.directory);
  if (options.load_format == LoadFormat::safetensors && has_weights && !parts.weights->has(probe))
    throw Failure(Error{ErrorCode::invalid_argument,
                        "EngineConfig::speculative: method mtp: " + source.directory.string() +
                            " has no module: tensor \"" + probe + "\" is missing",
                        "EngineConfig::speculative"});
  if (!is_layer) return make_qwen3_next_mtp(std::move(parts));
  return is_glm ? make_glm4_mtp(std::move(parts)) : make_deepseek_mtp(std::move(parts));
}

}  // namespace

std::unique_ptr<DraftModel> load_draft(const DraftSource& source, Device& device,
                                       const OpsTraits& ops, const LoadOptions& options) {
  if (source.form == DraftForm::mtp) return load_mtp(source, device, ops, options);
  return make_draft_of(read_draft_config(source.directory), source, device, ops, options);
}

std::unique_ptr<DraftModel> make_draft_of(DraftConfig config, const DraftSource& source,
                                          Device& device, const OpsTraits& ops,
                                          const LoadOptions& options) {
  check_match(config, source);
  check_files(source, options);
  if (source.form == DraftForm::eagle)
    return make_eagle(parts_of(source, config.layer, device, ops, options));
  config.stream_layers = streams_of(config, source);
  if (config.layer.num_layers != 1)
    refuse(config.layer.file, "num_hidden_layers",
           "must be 1: EAGLE-3 is one layer, " + std::to_string(config.layer.num_layers) +
               " are not supported",
           ErrorCode::unsupported);
  return make_eagle3(parts_of(source, config.layer, device, ops, options), config);
}

}  // namespace quire
