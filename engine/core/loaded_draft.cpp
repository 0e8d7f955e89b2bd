// The draft model of a configuration: what it cannot go with, and itself.

#include <algorithm>

#include "engine/core/engine_plan.h"
#include "engine/core/fingerprint.h"
#include "engine/kv_cache/group_manager.h"
#include "model/registry.h"

namespace quire {

// A state stands behind all tokens of a step: to go back to the last draft that held, there is one
// behind each draft. Those that later requests would continue from are not among them.
Result<void> check_drafts(const EngineConfig& config, const ModelMemory& memory,
                          const std::string& architecture) {
  if (config.speculative.method == DraftMethod::none) return {};
  const std::int64_t longest =
      config.model.max_model_len > 0 ? config.model.max_model_len : memory.model_max_len;
  if (const int count = config.speculative.num_speculative_tokens; count + 2 > longest)
    return Error{ErrorCode::invalid_argument,
                 "EngineConfig::speculative asks for num_speculative_tokens " +
                     std::to_string(count) + "; a context of " + std::to_string(longest) +
                     " has room for " + std::to_string(std::max<std::int64_t>(longest - 2, 0)) +
                     " between a prompt and the token that follows them",
                 "EngineConfig::speculative"};
  const bool keeps_states = std::ranges::any_of(
      memory.layers, [](const auto& layer) { return keeps_state(layer.spec.kind); });
  if (!keeps_states) return {};
  const auto refuse = [&](const std::string& why) {
    return Error{
        ErrorCode::unsupported,
        "EngineConfig::speculative with the recurrent states of " + architecture + " " + why,
        "EngineConfig::speculative"};
  };
  if (config.cache.mamba_cache_mode == StateCacheMode::all)
    return refuse(
        "does not work with CacheConfig::mamba_cache_mode all, which ends a step at each "
        "block; use adaptive or align");
  return {};
}

LoadedDraft make_draft(const EngineConfig& config, const ModelConfig& model_config, Model& target,
                       Device& device, const OpsTraits& ops, LoadOptions options) {
  const SpeculativeConfig& speculative = config.speculative;
  if (!speculative.uses_draft_model()) return {};
  const bool is_inside = speculative.method == DraftMethod::mtp;
  if (!is_inside && options.measure) check_draft_target(config);
  const DraftForm form = is_inside                                   ? DraftForm::mtp
                         : speculative.method == DraftMethod::eagle3 ? DraftForm::eagle3
                                                                     : DraftForm::eagle;
  LoadedDraft draft;
  if (!options.shard.whole()) {
    options.shard = {};
    ModelConfig without_layers = model_config;
    without_layers.num_layers = 0;
    draft.ends = load_model(without_layers, config.model.path, device, ops, options);
  }
  draft.model = load_draft({.form = form,
                            .directory = is_inside ? config.model.path : speculative.model,
                            .target_config = model_config,
                            .target = draft.ends ? *draft.ends : target},
                           device, ops, options);
  return draft;
}

}  // namespace quire
